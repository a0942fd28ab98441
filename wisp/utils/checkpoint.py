"""Trading time for memory: what a function saves for backward is thrown away and computed again when it is needed."""
import contextlib
import warnings

import wisp
from wisp.autograd import Function
from wisp.autograd.graph import saved_tensors_hooks

__all__ = ["CheckpointError", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_debug_enabled",
           "set_checkpoint_early_stop"]

_early_stop = True
_debug = None


class CheckpointError(RuntimeError):
    """Computing a checkpointed function again gave something else than the first time."""


class _Enough(Exception):
    """Everything that backward needs has been computed again."""


def noop_context_fn():
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
    """Accepted for PyTorch's sake; errors name the tensors that differ anyway."""
    global _debug
    before, _debug = _debug, enabled
    try:
        yield
    finally:
        _debug = before


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


def _describe(tensor):
    return tuple(tensor.shape), tensor.dtype, tensor.device


class _Recorded:
    """What stands for a saved tensor: its number among those that the function saves, and what it looked like."""

    def __init__(self, run, number, tensor):
        self.run, self.number, self.description = run, number, _describe(tensor)


class _Run:
    """One call of a checkpointed function: knows how to repeat it and hand out what it saves."""

    def __init__(self, function, args, kwargs, preserve, recompute_context, check, early_stop):
        self.function, self.args, self.kwargs = function, args, kwargs
        self.random = _RandomState(preserve, args)
        self.recompute_context, self.check, self.early_stop = recompute_context, check, early_stop
        self.count = 0       # tensors saved the first time
        self.values = None   # tensors saved the second time

    def pack(self, tensor):
        self.count += 1
        return _Recorded(self, self.count - 1, tensor)

    def unpack(self, recorded):
        if self.values is None or self.values.get(recorded.number) is None:
            self.compute()
        if recorded.number not in self.values:
            raise CheckpointError("checkpoint: a different number of tensors was saved during the original forward "
                                  f"and recomputation.\nNumber of tensors saved during forward: {self.count}\n"
                                  f"Number of tensors saved during recomputation: {len(self.values)}.")
        value = self.values.pop(recorded.number)
        if self.check and _describe(value) != recorded.description:
            raise CheckpointError("checkpoint: Recomputed values for the following tensors have different metadata "
                                  f"than during the forward pass.\nsaved {recorded.number}: {recorded.description}"
                                  f"\nrecomputed: {_describe(value)}")
        return value

    def compute(self):
        self.values = values = {}
        stop = _early_stop and self.early_stop

        def keep(tensor):
            values[len(values)] = tensor.detach()
            if stop and len(values) == self.count:
                raise _Enough
            return None

        def misuse(_):
            raise CheckpointError("checkpoint: backward ran inside of the checkpointed function while it was computed "
                                  "again, which is not supported; use use_reentrant=True")
        with self.random.restored(), self.recompute_context, wisp.enable_grad(), saved_tensors_hooks(keep, misuse):
            try:
                self.function(*self.args, **self.kwargs)
            except _Enough:
                pass


def _checkpoint_by_hooks(function, preserve, context_fn, check, early_stop, args, kwargs):
    forward_context, recompute_context = context_fn()
    if not wisp.is_grad_enabled():
        with forward_context:
            return function(*args, **kwargs)
    run = _Run(function, args, kwargs, preserve, recompute_context, check, early_stop)
    with forward_context, saved_tensors_hooks(run.pack, lambda recorded: recorded.run.unpack(recorded)):
        return function(*args, **kwargs)


class CheckpointFunction(Function):
    """The other way: run without recording, and record a second run within backward."""

    @staticmethod
    def forward(ctx, function, preserve, *args):
        ctx.function = function
        ctx.random = _RandomState(preserve, args)
        ctx.places = [i for i, arg in enumerate(args) if isinstance(arg, wisp.Tensor)]
        ctx.args = [None if isinstance(arg, wisp.Tensor) else arg for arg in args]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        return function(*args)

    @staticmethod
    def backward(ctx, *grads):
        args = list(ctx.args)
        for i, tensor in zip(ctx.places, ctx.saved_tensors):
            args[i] = tensor.detach().requires_grad_(tensor.requires_grad)
        with ctx.random.restored(), wisp.enable_grad():
            outputs = ctx.function(*args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(output, grad) for output, grad in zip(outputs, grads)
                 if isinstance(output, wisp.Tensor) and output.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        wisp.autograd.backward([output for output, _ in pairs], [grad for _, grad in pairs])
        return None, None, *(arg.grad if isinstance(arg, wisp.Tensor) else None for arg in args)


def checkpoint(function, *args, use_reentrant=None, context_fn=noop_context_fn, determinism_check="default",
               debug=False, early_stop=True, **kwargs):
    """`function(*args, **kwargs)`, without keeping what it saves for backward: that is computed again when needed.

    Random numbers are the same the second time unless `preserve_rng_state=False`. `use_reentrant=False` is the better
    way; with True the function is recorded only in the second run, needs an argument that requires grad, and does not
    go with `autograd.grad`.
    """
    if use_reentrant is None:
        warnings.warn("checkpoint: the use_reentrant parameter should be passed explicitly; use_reentrant=False is "
                      "recommended.", stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if not use_reentrant:
        check = determinism_check != "none"
        return _checkpoint_by_hooks(function, preserve, context_fn, check, early_stop, args, kwargs)
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
        warnings.warn("checkpoint_sequential: the use_reentrant parameter should be passed explicitly; "
                      "use_reentrant=False is recommended.", stacklevel=2)
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
    return run(functions[ends[-1]:])(input)


def get_device_states(*args):
    """The devices (other than the CPU) of the tensors, and the states of their random generators."""
    devices = list({arg.get_device() for arg in args if isinstance(arg, wisp.Tensor) and arg.is_cuda})
    return devices, [wisp.cuda.get_rng_state(device) for device in devices]


def set_device_states(devices, states, *, device_type=None):
    """Restore what `get_device_states` returned."""
    for device, state in zip(devices, states):
        wisp.cuda.set_rng_state(state, device)
