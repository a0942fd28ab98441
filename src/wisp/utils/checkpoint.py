"""Trading time for memory: what a function saves for backward is thrown away and computed again when it is needed."""

import contextlib
import enum
import warnings
import weakref

import wisp
from wisp import _reference
from wisp.autograd import Function
from wisp.autograd.graph import _Hooks as saved_tensors_hooks
from wisp.overrides import TorchFunctionMode
from wisp.utils._pytree import tree_leaves, tree_map

__all__ = """
    CheckpointError CheckpointPolicy DefaultDeviceType GraphExecGroup SelectiveCheckpointContext checkpoint checkpoint_sequential
    create_selective_checkpoint_contexts noop_context_fn set_checkpoint_debug_enabled set_checkpoint_early_stop""".split()

_early_stop = None  # what set_checkpoint_early_stop says of the calls inside of it
_debug = None


class CheckpointError(RuntimeError):
    """Computing a checkpointed function again gave something else than the first time."""


class _Enough(Exception):
    """Everything that backward needs has been computed again."""


def noop_context_fn():
    """Two contexts that do nothing: what `context_fn` is where it is not given."""
    return contextlib.nullcontext(), contextlib.nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable):
    """Whether to stop computing again as soon as all saved tensors are there (default)."""
    global _early_stop
    before, _early_stop = _early_stop, enable
    try:
        yield
    finally:
        _early_stop = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled):
    """Whether errors of checkpoints tell the operators of both runs, whatever their `debug` says."""
    global _debug
    before, _debug = _debug, enabled
    try:
        yield
    finally:
        _debug = before


class GraphExecGroup:
    """A context whose backward calls count as one: what one of them computes again serves the others, which must need other tensors."""

    _current = None

    def __enter__(self):
        if GraphExecGroup._current is not None:
            raise RuntimeError("GraphExecGroup contexts cannot be nested")
        GraphExecGroup._current = self

    def __exit__(self, *details):
        GraphExecGroup._current = None


class _Names(TorchFunctionMode):
    """Notes the functions that are called, for the message of an error."""

    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class _RandomState:
    """The state of the random generators now; `restored()` is a context in which it holds again."""

    def __init__(self, preserve, args):
        self.preserve = preserve
        if preserve:
            self.cpu = wisp.get_rng_state()
            devices = {arg.device for arg in args if isinstance(arg, wisp.Tensor) and arg.device.type == "cuda"}
            self.cuda = {device: wisp.cuda.get_rng_state(device) for device in devices}

    @contextlib.contextmanager
    def restored(self):
        if not self.preserve:
            yield
            return
        now = wisp.get_rng_state(), {device: wisp.cuda.get_rng_state(device) for device in self.cuda}
        self._set(self.cpu, self.cuda)
        try:
            yield
        finally:
            self._set(*now)

    @staticmethod
    def _set(cpu, cuda):
        wisp.set_rng_state(cpu)
        for device, state in cuda.items():
            wisp.cuda.set_rng_state(state, device)


class _Autocast:
    """Which casts are on now; `restored()` is a context in which they are again."""

    def __init__(self):
        self.state = [(kind, wisp.is_autocast_enabled(kind), wisp.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
        self.cache = wisp.is_autocast_cache_enabled()

    def restored(self):
        stack = contextlib.ExitStack()
        for kind, enabled, dtype in self.state:
            if enabled or wisp.is_autocast_enabled(kind):
                stack.enter_context(wisp.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self.cache))
        return stack


def _describe(tensor):
    return tuple(tensor.shape), tensor.dtype, tensor.device


class _Recorded:
    """What stands for a saved tensor: its number among those that the function saves, and what it looked like."""

    def __init__(self, run, number, tensor):
        self.run, self.number, self.description = run, number, _describe(tensor)


class _Run:
    """One call of a checkpointed function: knows how to repeat it and hand out what it saves."""

    def __init__(self, function, args, kwargs, preserve, recompute_context, check, early_stop, debug):
        self.names = (_Names(), _Names()) if (debug if _debug is None else _debug) else (contextlib.nullcontext(),) * 2
        self.function, self.args, self.kwargs = function, args, kwargs
        self.random, self.autocast = _RandomState(preserve, args), _Autocast()
        self.recompute_context, self.check = recompute_context, check
        self.early_stop = early_stop if _early_stop is None else _early_stop
        self.count, self.finished = 0, False  # tensors saved the first time, and whether that run is over
        self.values = None  # tensors saved the second time
        self.last = None  # the number of the tensor that was handed out last, and the tensor, held weakly
        self.task, self.taken = None, {}  # the backward pass that they were computed for, and which has had each

    def pack(self, tensor):
        self.count += 1
        return _Recorded(self, self.count - 1, tensor)

    def unpack(self, recorded):
        """The tensor; where operators are noted, an error tells them."""
        try:
            return self.found(recorded)
        except CheckpointError as error:
            if not isinstance(self.names[0], _Names):
                raise
            first, second = (", ".join(names.names) for names in self.names)
            raise CheckpointError(
                "You are seeing this error because you passed `debug=True` to checkpoint and tensors saved during the original "
                f"forward and recomputation do not match.\nThe forward called: {first}\nThe recomputation called: {second}\n{error}"
            ) from error

    def found(self, recorded):
        run = wisp._core._current_graph_task_id()
        task = GraphExecGroup._current or run
        if self.task == task is GraphExecGroup._current and self.taken.get(recorded.number, run) != run:
            raise CheckpointError(
                "torch.utils.checkpoint: Performing two backward calls that overlap (i.e. require the same saved activation in order "
                "to compute gradients) is not allowed while under the same GraphExecGroup."
            )
        if self.task == task and self.last is not None and self.last[0] == recorded.number:  # a node may ask twice in turn
            value = self.last[1]()
            if value is not None:
                return value
        if self.values is None or self.task != task or recorded.number not in self.values:
            self.compute()
            self.task, self.taken = task, {}
        if recorded.number not in self.values:
            raise CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward "
                f"and recomputation.\nNumber of tensors saved during forward: {self.count}\n"
                f"Number of tensors saved during recomputation: {len(self.values)}.\nIf a function of torch.compile took other shapes the "
                "second time, it may have been compiled again in between. Use torch._dynamo.mark_dynamic() to explicitly mark varying "
                "dimensions."
            )
        value = self.values.pop(recorded.number)
        self.taken[recorded.number], self.last = run, (recorded.number, weakref.ref(value))
        if self.check and _describe(value) != recorded.description:
            raise CheckpointError(
                "checkpoint: Recomputed values for the following tensors have different metadata "
                f"than during the forward pass.\nsaved {recorded.number}: {recorded.description}"
                f"\nrecomputed: {_describe(value)}"
            )
        return value

    def compute(self):
        self.values = values = {}
        stop = self.early_stop or not self.finished  # a backward pass inside of the first run: what comes later was not saved yet

        def keep(tensor):
            if len(values) >= self.count:
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original forward pass."
                )
            values[len(values)] = tensor.detach() if tensor.requires_grad else tensor
            if stop and len(values) == self.count:
                raise _Enough
            inner.append(tensor)
            return len(inner) - 1

        self.keep = keep
        inner = []  # for a backward pass inside of the function; the graph holds numbers, so that it can be freed without the collector

        with (
            self.random.restored(),
            self.autocast.restored(),
            self.recompute_context,
            self.names[1],
            wisp.enable_grad(),
            saved_tensors_hooks(keep, inner.__getitem__),
        ):
            try:
                self.function(*self.args, **self.kwargs)
            except _Enough:
                pass
            finally:
                inner.clear()
                del self.keep  # it refers to this object


def _checkpoint_by_hooks(function, preserve, context_fn, check, early_stop, debug, args, kwargs):
    forward_context, recompute_context = context_fn()
    if not wisp.is_grad_enabled():
        with forward_context:
            return function(*args, **kwargs)
    run = _Run(function, args, kwargs, preserve, recompute_context, check, early_stop, debug)
    for context in (forward_context, recompute_context):
        if isinstance(context, _SelectiveMode):
            context.run = run
    with forward_context, run.names[0], saved_tensors_hooks(run.pack, lambda recorded: recorded.run.unpack(recorded)):
        result = function(*args, **kwargs)
        run.finished = True
        return result
    raise RuntimeError("checkpoint: a context of context_fn suppressed an exception of the function, which must be let pass")


# --- some results are kept, the rest is computed again


class CheckpointPolicy(enum.Enum):
    """What to do with the results of an operator: keep them, or compute them again."""

    MUST_SAVE, PREFER_SAVE, MUST_RECOMPUTE, PREFER_RECOMPUTE = 0, 1, 2, 3


class SelectiveCheckpointContext:
    """What a policy is told about the run: whether it is the second one, and the operator's result where it is known."""

    def __init__(self, *, is_recompute, op_output=None):
        self.is_recompute, self.op_output = is_recompute, op_output


# Operators that PyTorch's dispatcher knows under another name, as policies write it.
_OTHER_NAMES = {
    "linear": ("mm", "addmm"),
    "matmul": ("mm", "bmm"),
    "conv1d": ("convolution",),
    "conv2d": ("convolution",),
    "conv3d": ("convolution",),
    "scaled_dot_product_attention": (
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_cudnn_attention",
    ),
}
SAC_IGNORED_OPS = set()  # operators that no policy is asked about


def _overloads(function, args, kwargs):
    """What a policy may call this operator: `torch.ops.aten.mm.default` and the like."""
    if isinstance(function, wisp._ops.OpOverload):  # a program's own
        return [function]
    name = function.__name__.strip("_")
    try:
        own = wisp._ops.overload_of(function, args, {key: value for key, value in kwargs.items() if key != "out"})[0]
    except (AttributeError, IndexError, TypeError):
        own = getattr(wisp.ops.aten, name).default
    return [own, *(getattr(wisp.ops.aten, other).default for other in _OTHER_NAMES.get(name, ()))]


def _layout(tensor):
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


class _SelectiveMode(TorchFunctionMode):
    """Keeps results in the first run (`_Keeping`) and hands them out in the second (`_HandingOut`).

    `kept` has for each operator what became of its calls, in order: None where it is computed again.
    """

    def __init__(self, policy, kept, may_change):
        self.policy, self.kept, self.may_change, self.run = policy, kept, may_change, None

    @staticmethod
    def _unseen(function):  # what changes its argument cannot be left out
        return function.__name__.endswith("_") or function in SAC_IGNORED_OPS


class _Keeping(_SelectiveMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.run is None or self._unseen(func):
            return func(*args, **kwargs)
        context = SelectiveCheckpointContext(is_recompute=False)
        decisions = (self.policy(context, overload, *args, **kwargs) for overload in _overloads(func, args, kwargs))
        calls = self.kept.setdefault(func.__name__, [])
        if not any(made in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE) or made is True for made in decisions):
            calls.append(None)
            return func(*args, **kwargs)
        packed = []

        def pack(tensor):
            packed.append(tensor.detach())
            return self.run.pack(tensor)

        before = wisp.get_rng_state()
        with saved_tensors_hooks(pack, lambda recorded: recorded.run.unpack(recorded)):
            result = func(*args, **kwargs)
        after = wisp.get_rng_state()
        results = [value for value in tree_leaves(result) if isinstance(value, wisp.Tensor)]
        inputs = [value for value in tree_leaves((args, list(kwargs.values()))) if isinstance(value, wisp.Tensor)]
        sources = []  # where the second run finds what the operator saves: among its inputs, its results, or kept here
        for tensor in packed:
            place = _layout(tensor)
            found = next(
                (
                    (kind, i)
                    for kind, group in (("input", inputs), ("result", results))
                    for i, value in enumerate(group)
                    if _layout(value) == place
                ),
                None,
            )
            sources.append(found or ("kept", tensor))
        random = None if wisp.equal(before, after) else after
        calls.append((tree_map(_detached, result), [value._version for value in results], sources, random))
        return result


class _Taken(int):
    """In the place of a result that was handed out: the number of the backward pass."""


class _HandingOut(_SelectiveMode):
    def __enter__(self):
        self.numbers = {}
        return super().__enter__()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._unseen(func):
            return func(*args, **kwargs)
        name = func.__name__
        number = self.numbers[name] = self.numbers.get(name, -1) + 1
        calls = self.kept.get(name, ())
        if number >= len(calls):
            raise RuntimeError(
                f"checkpoint: {name} was called while the function was computed again, invocation index {number} not found in storage: "
                f"the first run called it {len(calls)} times. The function must do the same both times."
            )
        entry = calls[number]
        if entry is None:
            return func(*args, **kwargs)
        run = wisp._core._current_graph_task_id()
        if isinstance(entry, _Taken) and entry == run:  # a node asks twice in one pass
            return func(*args, **kwargs)
        if isinstance(entry, _Taken):
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under selective "
                "activation checkpoint, whose kept results are freed by the first pass."
            )
        result, versions, sources, random = entry
        calls[number] = _Taken(run)
        if random is not None:  # later operators draw what they drew the first time
            wisp.set_rng_state(random)
        inputs = [value for value in tree_leaves((args, list(kwargs.values()))) if isinstance(value, wisp.Tensor)]
        results = [value for value in tree_leaves(result) if isinstance(value, wisp.Tensor)]
        if not self.may_change and versions != [value._version for value in results]:
            raise RuntimeError(
                f"checkpoint: a tensor that {name} returned and that was kept has been mutated since. Do not change it in place, let it be "
                "computed again, or pass allow_cache_entry_mutation=True if the change does not matter."
            )
        for kind, place in sources:
            self.run.keep(place if kind == "kept" else (inputs if kind == "input" else results)[place])
        if not any(value.requires_grad for value in inputs):
            return result

        def tracked(value):
            if not isinstance(value, wisp.Tensor) or not (value.is_floating_point() or value.is_complex()):
                return value
            value.requires_grad_()
            return value.clone() if self.may_change else value  # a leaf cannot be changed in place

        return tree_map(tracked, result)


def _detached(value):
    return value.detach() if isinstance(value, wisp.Tensor) else value


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """The contexts in which `checkpoint` keeps the results of some operators and computes the others again.

    Give it to `checkpoint` as `context_fn`. A policy is a list of operators whose results are kept, or a function
    `policy(context, operator, *args, **kwargs)` that returns a `CheckpointPolicy`.

    >>> import functools, wisp
    >>> from wisp.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> keep_products = functools.partial(create_selective_checkpoint_contexts, [wisp.ops.aten.mm.default])
    >>> x = wisp.ones(2, 2, requires_grad=True)
    >>> y = checkpoint(lambda x: (x @ x).sin().sum(), x, use_reentrant=False, context_fn=keep_products)
    >>> y.backward(); x.grad
    tensor([[-1.6646, -1.6646],
            [-1.6646, -1.6646]])
    """
    if isinstance(policy_fn_or_list, list):
        for operator in policy_fn_or_list:
            if not isinstance(operator, wisp._ops.OpOverload):
                packet = isinstance(operator, wisp._ops.OpOverloadPacket)
                raise ValueError(
                    f"Expected op in `op_list` to be an OpOverload, but got {operator!r} of type {type(operator)}; "
                    + ("update the OpOverloadPacket to a specific OpOverload: " if packet else "")
                    + "write torch.ops.aten.mm.default rather than torch.mm or torch.ops.aten.mm"
                )

        def policy(context, operator, *args, **kwargs):
            return CheckpointPolicy.MUST_SAVE if operator in policy_fn_or_list else CheckpointPolicy.PREFER_RECOMPUTE
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept = {}
    return _Keeping(policy, kept, allow_cache_entry_mutation), _HandingOut(policy, kept, allow_cache_entry_mutation)


class DefaultDeviceType:
    """The type of device whose random state is kept where no argument says which.

    >>> from wisp.utils.checkpoint import DefaultDeviceType
    >>> DefaultDeviceType.get_device_type()
    'cuda'
    """

    _type = "cuda"

    @staticmethod
    def set_device_type(device="cuda"):
        DefaultDeviceType._type = device

    @staticmethod
    def get_device_type():
        return DefaultDeviceType._type


def detach_variable(inputs):
    """The inputs, those that are tensors without their history."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type:  {type(inputs).__name__}")
    return tuple(i.detach().requires_grad_(i.requires_grad) if isinstance(i, wisp.Tensor) else i for i in inputs)


def check_backward_validity(inputs):
    """Warn if no input requires a gradient: a reentrant checkpoint gives none then."""
    if not any(isinstance(i, wisp.Tensor) and i.requires_grad for i in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class CheckpointFunction(Function):
    """The other way: run without recording, and record a second run within backward."""

    @staticmethod
    def forward(ctx, function, preserve, *args):
        ctx.function = function
        ctx.random, ctx.autocast = _RandomState(preserve, args), _Autocast()
        ctx.places = [i for i, arg in enumerate(args) if isinstance(arg, wisp.Tensor)]
        ctx.args = [None if isinstance(arg, wisp.Tensor) else arg for arg in args]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        return function(*args)

    @staticmethod
    def backward(ctx, *grads):
        if wisp._core._run_is_selective():
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to "
                ".backward(): the function's parameters would get gradients that nobody asked for. Pass use_reentrant=False."
            )
        args = list(ctx.args)
        for i, tensor in zip(ctx.places, ctx.saved_tensors):
            args[i] = tensor.detach().requires_grad_(tensor.requires_grad)
        with ctx.random.restored(), ctx.autocast.restored(), wisp.enable_grad():
            outputs = ctx.function(*args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(output, grad) for output, grad in zip(outputs, grads) if isinstance(output, wisp.Tensor) and output.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        wisp.autograd.backward([output for output, _ in pairs], [grad for _, grad in pairs])
        return None, None, *(arg.grad if isinstance(arg, wisp.Tensor) else None for arg in args)


def checkpoint(
    function, *args, use_reentrant=None, context_fn=noop_context_fn, determinism_check="default", debug=False, early_stop=True, **kwargs
):
    """`function(*args, **kwargs)`, without keeping what it saves for backward: that is computed again when needed.

    Random numbers are the same the second time unless `preserve_rng_state=False`. `use_reentrant=False` is the better
    way; with True the function is recorded only in the second run, needs an argument that requires grad, and does not
    go with `autograd.grad`.
    """
    if use_reentrant is None:
        warnings.warn(
            "checkpoint: the use_reentrant parameter should be passed explicitly; use_reentrant=False is recommended.", stacklevel=2
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if not use_reentrant:
        check = determinism_check != "none"
        return _checkpoint_by_hooks(function, preserve, context_fn, check, early_stop, debug, args, kwargs)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if context_fn is not noop_context_fn or debug:
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if not any(isinstance(arg, wisp.Tensor) and arg.requires_grad for arg in args):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)
    return CheckpointFunction.apply(function, preserve, *args)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Run a list of functions (or an nn.Sequential) in checkpointed segments; the last one is not checkpointed."""
    if use_reentrant is None:
        warnings.warn(
            "checkpoint_sequential: the use_reentrant parameter should be passed explicitly; use_reentrant=False is recommended.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    functions = list(functions.children()) if isinstance(functions, wisp.nn.Sequential) else list(functions)

    def run(part):
        def forward(value):
            for function in part:
                value = function(value)
            return value

        return forward

    size = len(functions) // segments
    ends = [size * i for i in range(segments)]
    for start, end in zip(ends, ends[1:]):
        input = checkpoint(run(functions[start:end]), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return run(functions[ends[-1] :])(input)


def get_device_states(*args):
    """The devices (other than the CPU) of the tensors, and the states of their random generators."""
    devices = list({arg.get_device() for arg in args if isinstance(arg, wisp.Tensor) and arg.is_cuda})
    return devices, [wisp.cuda.get_rng_state(device) for device in devices]


def set_device_states(devices, states, *, device_type=None):
    """Restore what `get_device_states` returned."""
    for device, state in zip(devices, states):
        wisp.cuda.set_rng_state(state, device)


_reference.attach(__name__, globals())
