"""Operations with a derivative written in Python."""

import functools
import threading
import warnings
import weakref

import wisp
from wisp import _core

__all__ = ["Function", "FunctionCtx", "once_differentiable", "InplaceFunction", "NestedIOFunction"]


_BatchedTensor = _apply_batched = None  # vmap's tensors, and how it applies a Function to them


def set_batching(batched_type, apply):
    """wisp.func says when it is first used what its tensors are; until then no Function can meet one."""
    global _BatchedTensor, _apply_batched
    _BatchedTensor, _apply_batched = batched_type, apply


_active = threading.local()  # how many of wisp.func's transforms this thread is in; .lenient: any Function may be in them


class transform:
    """The context of a transform that is running; `autograd.functional` and some Functions have no place there."""

    def __enter__(self):
        _active.count = getattr(_active, "count", 0) + 1
        _core._transforms(1)

    def __exit__(self, *error):
        _active.count -= 1
        _core._transforms(-1)


def transforms_active():
    return getattr(_active, "count", 0) > 0


def check_transformable(cls):
    if getattr(_active, "lenient", False):
        return
    if cls.setup_context is Function.setup_context and not cls.__module__.startswith("wisp."):
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override the "
            f"setup_context staticmethod, which {cls.__name__} does not."
        )


def _check_not_saved(ctx, inputs, outputs):
    """`setup_context` sees the input itself, not the alias of it that `apply` returns: one that is returned as it is cannot be saved."""
    for saved in (*ctx._to_save, *ctx._saved_for_forward):
        if saved is not None and any(saved is arg for arg in inputs) and any(saved is out for out in outputs):
            if not any(saved is dirty for dirty in ctx._dirty):
                raise RuntimeError(
                    "An input that has been returned as-is from forward is being saved, which is not supported in setup_context. You "
                    "should return and save a view of the input instead, e.g. x.view_as(x)."
                )


class FunctionCtx:
    """Carries values from `forward` to `backward`. Tensors go through `save_for_backward`, where in-place changes are
    noticed; anything else can be an attribute."""

    _to_save = ()
    _dirty = ()
    _non_differentiable = ()
    _materialize = True
    _materialize_non_diff_grads = True  # a program may say otherwise of outputs without a gradient
    _without_gradient = ()
    _node = None
    _saved_for_forward = ()
    _arguments = ()
    _views = {}  # in forward mode: which results are inputs, or views of them
    _is_pure_view = False  # a Function says so of one whose view is described by its layout alone: it may be written to
    needs_input_grad = ()

    def save_for_backward(self, *tensors):
        """Keep tensors (or None) for `backward`, where they are `ctx.saved_tensors`. Call it once, in `forward`."""
        self._to_save = tensors  # without a graph nothing is kept of them, and they may be anything

    def save_for_forward(self, *tensors):
        """Keep tensors for `jvp`, where they are `ctx.saved_tensors`."""
        self._saved_for_forward = tensors

    @property
    def saved_tensors(self):
        return self._to_save if self._node is None else _core._node_saved_tensors(self._node)

    @property
    def saved_variables(self):
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def mark_dirty(self, *args):
        """Say which inputs `forward` has changed in place; they must be returned."""
        self._dirty = args

    def mark_non_differentiable(self, *args):
        """Say which outputs have no gradient."""
        self._non_differentiable = args

    def set_materialize_grads(self, value):
        """If False, `backward` gets None instead of zeros for outputs that had no part in the loss."""
        self._materialize = value

    def apply(self, *grads):
        """Run `backward` by hand."""
        return _call_backward(self._function, self, grads)

    def _apply_of(self, node):
        """`node.apply`: as above, with what the node has saved."""

        def apply(*grads):
            before, self._node = self._node, node
            try:
                return self.apply(*grads)
            finally:
                self._node = before

        return apply

    # ------------------------------------------------------------ called by the engine
    def _run_backward(self, grads, node):
        """Gradients of the outputs in, gradients of the inputs (one per argument of `apply`) out."""
        before, self._node = self._node, node
        try:
            return self._checked_backward(grads)
        finally:
            self._node = before

    def _checked_backward(self, given):
        function, grads = self._function, list(given)
        given.clear()  # the engine's list: who gets the gradients may let go of them
        if self._materialize:
            left = () if self._materialize_non_diff_grads else self._without_gradient
            grads[:] = (
                wisp.zeros(kind[0], dtype=kind[1], device=kind[2]) if grad is None and kind is not None and i not in left else grad
                for i, (grad, kind) in enumerate(zip(grads, self._outputs))
            )
        results = _call_backward(function, self, grads)
        if not isinstance(results, tuple):
            results = tuple(results) if isinstance(results, list) else (results,)
        expected = len(self.needs_input_grad)
        if len(results) > expected and all(result is None for result in results[expected:]):
            results = results[:expected]
        if len(results) != expected:
            raise RuntimeError(f"function {self._name} returned an incorrect number of gradients (expected {expected}, got {len(results)})")
        for i, result in enumerate(results):
            if result is not None and not isinstance(result, wisp.Tensor):
                raise TypeError(f"function {self._name} returned a {type(result).__name__} at position {i}: expected a Tensor or None")
        return results

    # ------------------------------------------------------------ called when tangents are propagated
    def _has_jvp(self):
        function = self._function
        if function.jvp is Function.jvp and function.backward is Function.backward and function.vjp is Function.vjp:
            raise RuntimeError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")
        return function.jvp is not Function.jvp

    def _run_jvp(self, tangents, outputs):
        """Tangents of the arguments (None where there is none) in, tangents of the outputs out."""
        if self._materialize:
            tangents = tuple(
                wisp.zeros_like(value)
                if tangent is None and isinstance(value, wisp.Tensor) and (value.is_floating_point() or value.is_complex())
                else tangent
                for tangent, value in zip(tangents, self._arguments)
            )
        before, self._to_save = self._to_save, self._saved_for_forward
        node, self._node = self._node, None
        versions = [None if tangent is None else tangent._version for tangent in tangents]
        try:
            results = self._function.jvp(self, *tangents)
        finally:
            self._to_save, self._node = before, node
        results = results if isinstance(results, tuple) else (results,)
        places = [i for i, output in enumerate(outputs) if output is not None]
        if len(results) == len(places) != len(outputs):  # one per tensor is enough
            results = tuple(results[places.index(i)] if i in places else None for i in range(len(outputs)))
        if len(results) != len(outputs):
            raise RuntimeError(
                f"{self._function.__name__}.jvp returned {len(results)} tangents for "
                f"{len(outputs)} outputs of forward: return one per output (None where there is none)"
            )
        self._check_tangents(tangents, versions, results, outputs)
        for result, output in zip(results, outputs):
            if result is not None and output is not None and result.shape != output.shape:
                raise RuntimeError(
                    f"{self._function.__name__}.jvp returned a tangent of shape {tuple(result.shape)} for "
                    f"an output of shape {tuple(output.shape)}"
                )
        return results

    def _check_tangents(self, tangents, versions, results, outputs):
        """What forward does to its inputs jvp must do to their tangents: change them in place, or return views of them."""
        for i, (result, output) in enumerate(zip(results, outputs)):
            if result is None:
                continue
            if i in self._without_gradient:
                raise RuntimeError(
                    f"{self._function.__name__}.jvp returned a tangent for output {i}, which has no gradient. You should return None at "
                    "that position instead."
                )
            changed = next((j for j, arg in enumerate(self._arguments) if arg is output), None)
            if changed is not None and tangents[changed] is not None:
                if result is not tangents[changed] or result._version == versions[changed]:
                    raise RuntimeError(
                        "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an "
                        "input inplace, then the jvp function must modify the corresponding gradient inplace."
                    )
            source = self._views.get(i)
            if source is None or tangents[source] is None:
                continue
            tangent, text = (
                tangents[source],
                "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view",
            )
            if result._base is None:
                raise RuntimeError(f"{text}.")
            if result._base is not tangent and (tangent._base is None or result._base is not tangent._base):
                inner = self._arguments[source]._base is not None and tangent._base is not None
                raise RuntimeError(f"{text} of the {'same base as the given' if inner else 'given'} grad input.")


BackwardCFunction = FunctionCtx  # the class of nodes in PyTorch, where node and ctx are one


class Function:
    """An operation with its own derivative.

    A subclass has static methods `forward(ctx, *args)` and `backward(ctx, *grad_outputs)`, which returns one gradient
    per argument of forward; instead of `ctx` in forward there may be a `setup_context(ctx, inputs, output)`. It is
    called by `apply`. A static method `jvp(ctx, *tangents)` that returns the tangents of the outputs is used in forward
    mode, if there is one:

        class Exp(Function):
            @staticmethod
            def forward(ctx, x):
                y = x.exp()
                ctx.save_for_backward(y)
                return y

            @staticmethod
            def backward(ctx, grad):
                y, = ctx.saved_tensors
                return grad * y

        Exp.apply(x)
    """

    _node_name = None  # what its node is called, if not after the class
    generate_vmap_rule = False
    boxed_grads_call = False  # backward(ctx, [gradients]): it may empty the list to free them early

    def __init__(self, *args, **kwargs):
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should invoke them on the "
            "class itself: use .apply",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with static "
            "forward method, by .apply of the class."
        )

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx, *grad_inputs):
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")

    @staticmethod
    def vmap(info, in_dims, *args):
        """The rule for batches; see `func.vmap`."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap static method or set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args, **kwargs):
        """Run `forward`, and record `backward` if an argument requires grad."""
        if kwargs or cls.setup_context is not Function.setup_context:
            args, kwargs = _positional(cls, args, kwargs)
        if _apply_batched is not None and any(type(arg) is _BatchedTensor for arg in args):
            return _apply_batched(cls, args, kwargs)
        if transforms_active():
            check_transformable(cls)
        ctx = FunctionCtx()
        inputs = tuple(arg if isinstance(arg, wisp.Tensor) else None for arg in args)
        ctx.needs_input_grad = tuple(arg is not None and arg.requires_grad for arg in inputs)
        recording = _core.is_grad_enabled() and any(ctx.needs_input_grad)
        forward_mode = any(arg is not None and _core._has_tangent(arg) for arg in inputs)
        if forward_mode and cls.jvp is Function.jvp:  # tangents are found by backward, which must not leave them out
            ctx.needs_input_grad = tuple(arg is not None and (arg.requires_grad or _core._has_tangent(arg)) for arg in inputs)
        visible = _core._hide_tangents(0) if forward_mode else None
        try:
            with wisp.no_grad():
                if cls.setup_context is Function.setup_context:
                    result = cls.forward(ctx, *args, **kwargs)
                else:
                    result = cls.forward(*args, **kwargs)
                    cls.setup_context(ctx, args, result)
                    if ctx._to_save or ctx._saved_for_forward:
                        _check_not_saved(ctx, args, result if isinstance(result, (tuple, list)) else (result,))
        finally:
            if forward_mode:
                _core._hide_tangents(visible)
        if not recording and not forward_mode:
            if _core.is_grad_enabled():  # a view made here has no place in a graph
                for value in result if isinstance(result, (tuple, list)) else (result,):
                    if isinstance(value, wisp.Tensor) and value._base is not None:
                        _core._mark_custom_view(value)
            return result
        for place, saved in enumerate(ctx._to_save):
            if saved is not None and not isinstance(saved, wisp.Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument {place} is of type {type(saved).__name__}")
        if forward_mode:
            ctx._arguments = args
        single = not isinstance(result, (tuple, list))
        values = [result] if single else list(result)
        dirty = _written_inputs(ctx._dirty, args)
        for tensor in dirty:
            if not any(tensor is value for value in values):
                raise RuntimeError(
                    "Some elements marked as dirty during the forward method were not returned as "
                    "output. The inputs that are modified inplace must all be outputs of the Function."
                )
        places = [i for i, value in enumerate(values) if isinstance(value, wisp.Tensor)]
        if forward_mode:
            ctx._views = _views_of(inputs, values, dirty)
        plain = []
        for i in places:
            if values[i].is_complex():
                values[i] = values[i].resolve_conj()
            output = values[i]
            changed = any(output is tensor for tensor in dirty)
            if not changed and (output.requires_grad or any(output is arg for arg in inputs)):
                alias = output.detach()  # an input that is returned gets a history of its own
                ctx._to_save = tuple(
                    alias if saved is output and not any(saved is arg for arg in inputs) else saved for saved in ctx._to_save
                )
                if any(output is tensor for tensor in ctx._non_differentiable):
                    plain.append(alias)
                output = values[i] = alias
            if not (output.is_floating_point() or output.is_complex()) or any(output is tensor for tensor in ctx._non_differentiable):
                plain.append(output)
        outputs = tuple(value if isinstance(value, wisp.Tensor) else None for value in values)
        if ctx._is_pure_view and (len(places) != 1 or sum(arg is not None for arg in inputs) != 1):
            raise RuntimeError(
                f"{cls.__name__}: Pure view custom Function can only have one input Tensor and one output Tensor. Open an issue if you "
                "need to support more."
            )
        if plain:
            ctx._without_gradient = tuple(i for i in places if any(outputs[i] is value for value in plain))
        ctx._function, ctx._name = cls, cls._node_name or cls.__name__ + ("GeneratedBackward" if transforms_active() else "Backward")
        ctx._outputs = [None if output is None else (tuple(output.shape), output.dtype, output.device) for output in outputs]
        try:
            recorded = _core._function_record(ctx, ctx._name, inputs, outputs, tuple(dirty), tuple(plain), ctx._to_save)
        finally:  # what the node refers to would refer to the node
            ctx._to_save = ctx._arguments = ctx._dirty = ctx._non_differentiable = ()
        for i in places:
            values[i] = recorded[i]
        return values[0] if single else tuple(values)


def _written_inputs(dirty, args):
    """Those of the tensors marked as dirty that are inputs."""
    others = [tensor for tensor in dirty if not any(tensor is arg for arg in args)]
    if any(tensor._base is not None for tensor in others):
        raise RuntimeError(
            "mark_dirty received a tensor that was not an input. It is a view: there is no need to mark it, return it alone."
        )
    if others:
        warnings.warn(
            "Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need to pass it to "
            "mark_dirty().",
            stacklevel=3,
        )
    return tuple(tensor for tensor in dirty if any(tensor is arg for arg in args))


def _views_of(inputs, outputs, dirty):
    found = {}
    for i, output in enumerate(outputs):
        if not isinstance(output, wisp.Tensor):
            continue
        base = output._base
        for j, arg in enumerate(inputs):
            if arg is None or any(arg is tensor for tensor in dirty):
                continue
            if output is arg or base is not None and (base is arg or base is arg._base):
                found[i] = j
                break
    return found


def _positional(cls, args, kwargs):
    """The arguments of `forward` in its order, with defaults where `setup_context` will see them."""
    with_context = cls.setup_context is Function.setup_context
    signature = _signatures.get(cls.forward)
    if signature is None:
        import inspect  # a slow import, for few

        _signatures[cls.forward] = signature = inspect.signature(cls.forward)
    unknown = [name for name in kwargs if name not in signature.parameters]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        raise TypeError(f"{cls.__name__}.apply() got an unexpected keyword argument {unknown[0]!r}")
    try:
        bound = signature.bind(*((None,) if with_context else ()), *args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}.apply() got {error}" if "multiple values" in str(error) else str(error)) from None
    if not with_context:
        bound.apply_defaults()
    return bound.args[1:] if with_context else bound.args, bound.kwargs


_signatures = weakref.WeakKeyDictionary()


def _call_backward(function, ctx, grads):
    own_backward, own_vjp = function.backward is not Function.backward, function.vjp is not Function.vjp
    if own_backward and own_vjp:
        raise RuntimeError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one of them."
        )
    backward = function.vjp if own_vjp else function.backward
    if function.boxed_grads_call:
        return backward(ctx, grads if isinstance(grads, list) else list(grads))
    return backward(ctx, *grads)


class InplaceFunction(Function):
    """A Function that changes an argument in place (PyTorch's name; `mark_dirty` does the work)."""


def once_differentiable(function):
    """For a `backward` that is not made of recorded operations: differentiating its result is an error."""

    @functools.wraps(function)
    def backward(ctx, *grads):
        with wisp.no_grad():
            results = function(ctx, *grads)
        if not _core.is_grad_enabled():
            return results
        if not any(isinstance(grad, wisp.Tensor) and grad.requires_grad for grad in grads) and not any(
            isinstance(saved, wisp.Tensor) and saved.requires_grad for saved in ctx.saved_tensors
        ):
            return results
        single = not isinstance(results, tuple)
        results = (results,) if single else results
        fresh = tuple(result.detach().requires_grad_() if isinstance(result, wisp.Tensor) else result for result in results)
        guarded = _Undifferentiable.apply(*fresh)
        return guarded[0] if single else guarded

    return backward


class _Undifferentiable(Function):
    _node_name = "Error"  # as PyTorch has it

    @staticmethod
    def forward(ctx, *results):
        return tuple(x.detach() if isinstance(x, wisp.Tensor) else x for x in results)

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def _leaves(nested):
    """The tensors and Nones of tuples within tuples, in order."""
    if nested is None or isinstance(nested, wisp.Tensor):
        return [nested]
    if isinstance(nested, (tuple, list)):
        return [leaf for part in nested for leaf in _leaves(part)]
    raise ValueError(f"NestedIOFunction: expected tensors, None, and tuples or lists of them, got {type(nested).__name__}")


def _like(nested, leaves):
    """`nested` with other leaves, which are taken from an iterator."""
    if nested is None or isinstance(nested, wisp.Tensor):
        return next(leaves)
    return type(nested)(_like(part, leaves) for part in nested)


class _Nested(Function):
    """What an object of NestedIOFunction does, on the tensors of its arguments side by side."""

    @staticmethod
    def forward(ctx, function, *tensors):
        function._ctx, ctx.function = ctx, function
        function._output = function.forward_extended(*_like(function._input, iter(tensors)))
        return tuple(_leaves(function._output))

    @staticmethod
    def backward(ctx, *grads):
        function, ctx.function._ctx = ctx.function, ctx
        return None, *_leaves(function.backward_extended(*_like(_several(function._output), iter(grads))))


def _several(result):
    return result if isinstance(result, tuple) else (result,)


class NestedIOFunction(Function):
    """An operation of older programs whose arguments and results are tensors in tuples: an object of it is called, and has its own
    `forward_extended` and `backward_extended`, which returns one gradient for each tensor. New programs derive from `Function`.

    >>> class Difference(wisp.autograd.NestedIOFunction):
    ...     def forward_extended(self, pair):
    ...         return pair[0] - pair[1]
    ...
    ...     def backward_extended(self, grad):
    ...         return grad, -grad
    >>> x = wisp.ones(2, requires_grad=True)
    >>> Difference()((wisp.zeros(2), x)).sum().backward()
    >>> x.grad
    tensor([-1., -1.])
    """

    def __init__(self):
        pass

    def __call__(self, *input):
        self._input = input
        results = _Nested.apply(self, *_leaves(input))
        return _like(self._output, iter(results))

    def save_for_backward(self, *args):
        """Keep tensors, in tuples as they come, for `backward_extended`, where they are `saved_tensors`."""
        self._saved = args
        self._ctx.save_for_backward(*_leaves(args))

    @property
    def saved_tensors(self):
        return _like(self._saved, iter(self._ctx.saved_tensors))

    def mark_dirty(self, *args):
        """Say which inputs `forward_extended` has changed in place."""
        self._ctx.mark_dirty(*_leaves(args))

    def mark_non_differentiable(self, *args):
        """Say which results have no gradient."""
        self._ctx.mark_non_differentiable(*_leaves(args))

    def forward_extended(self, *input):
        """The results: the program's to write."""
        raise NotImplementedError("NestedIOFunction: the class must define forward_extended")

    def backward_extended(self, *grad_output):
        """The gradients of the arguments: the program's to write."""
        raise NotImplementedError("NestedIOFunction: the class must define backward_extended")
