"""Operations with a derivative written in Python."""

import functools
import warnings
import weakref

import wisp
from wisp import _core

__all__ = ["Function", "FunctionCtx", "once_differentiable", "InplaceFunction"]


_BatchedTensor = _apply_batched = None  # vmap's tensors, and how it applies a Function to them


def set_batching(batched_type, apply):
    """wisp.func says when it is first used what its tensors are; until then no Function can meet one."""
    global _BatchedTensor, _apply_batched
    _BatchedTensor, _apply_batched = batched_type, apply


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
    _places = None  # where tensors are among forward's results, and how many these are, if not all are tensors
    needs_input_grad = ()

    def save_for_backward(self, *tensors):
        """Keep tensors (or None) for `backward`, where they are `ctx.saved_tensors`. Call it once, in `forward`."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, wisp.Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {tensors.index(tensor)} is of type {type(tensor).__name__}"
                )
        self._to_save = tensors

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

    # ------------------------------------------------------------ called by the engine
    def _run_backward(self, grads, node):
        """Gradients of the outputs in, gradients of the inputs (one per argument of `apply`) out."""
        before, self._node = self._node, node
        try:
            return self._checked_backward(grads)
        finally:
            self._node = before

    def _checked_backward(self, grads):
        function = self._function
        if self._materialize:
            left = () if self._materialize_non_diff_grads else self._without_gradient
            grads = tuple(
                wisp.zeros(shape, dtype=dtype, device=device) if grad is None and i not in left else grad
                for i, (grad, (shape, dtype, device)) in enumerate(zip(grads, self._outputs))
            )
        if self._places is not None:  # one gradient per result of forward, None for what is no tensor
            every = [None] * self._places[1]
            for place, grad in zip(self._places[0], grads):
                every[place] = grad
            grads = tuple(every)
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
        return self._function.jvp is not Function.jvp

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
        try:
            results = self._function.jvp(self, *tangents)
        finally:
            self._to_save, self._node = before, node
        results = results if isinstance(results, tuple) else (results,)
        if len(results) != len(outputs):
            raise RuntimeError(
                f"{self._function.__name__}.jvp returned {len(results)} tangents for "
                f"{len(outputs)} outputs of forward: return one per output (None where there is none)"
            )
        for result, output in zip(results, outputs):
            if result is not None and result.shape != output.shape:
                raise RuntimeError(
                    f"{self._function.__name__}.jvp returned a tangent of shape {tuple(result.shape)} for "
                    f"an output of shape {tuple(output.shape)}"
                )
        return results


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
        ctx = FunctionCtx()
        inputs = tuple(arg if isinstance(arg, wisp.Tensor) else None for arg in args)
        ctx.needs_input_grad = tuple(arg is not None and arg.requires_grad for arg in inputs)
        recording = _core.is_grad_enabled() and any(ctx.needs_input_grad)
        forward_mode = any(arg is not None and _core._has_tangent(arg) for arg in inputs)
        visible = _core._hide_tangents(0) if forward_mode else None
        try:
            with wisp.no_grad():
                if cls.setup_context is Function.setup_context:
                    result = cls.forward(ctx, *args, **kwargs)
                else:
                    result = cls.forward(*args, **kwargs)
                    cls.setup_context(ctx, args, result)
        finally:
            if forward_mode:
                _core._hide_tangents(visible)
        if not recording and not forward_mode:
            return result
        if forward_mode:
            ctx._arguments = args
        single = not isinstance(result, (tuple, list))
        values = [result] if single else list(result)
        dirty = ctx._dirty
        for tensor in dirty:
            if not any(tensor is value for value in values):
                raise RuntimeError(
                    "Some elements marked as dirty during the forward method were not returned as "
                    "output. The inputs that are modified inplace must all be outputs of the Function."
                )
        places = [i for i, value in enumerate(values) if isinstance(value, wisp.Tensor)]
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
        outputs = tuple(values[i] for i in places)
        if len(places) != len(values):
            ctx._places = places, len(values)
        if plain:
            ctx._without_gradient = tuple(i for i, output in enumerate(outputs) if any(output is value for value in plain))
        ctx._function, ctx._name = cls, cls.__name__ + "Backward"
        ctx._outputs = [(tuple(output.shape), output.dtype, output.device) for output in outputs]
        recorded = _core._function_record(ctx, ctx._name, inputs, outputs, tuple(dirty), tuple(plain), ctx._to_save)
        ctx._to_save = ctx._arguments = ()
        for i, output in zip(places, recorded):
            values[i] = output
        return values[0] if single else tuple(values)


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
    return backward(ctx, list(grads)) if function.boxed_grads_call else backward(ctx, *grads)


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
        guarded = tuple(
            _Undifferentiable.apply(result.detach().requires_grad_()) if isinstance(result, wisp.Tensor) else result for result in results
        )
        return guarded[0] if single else guarded

    return backward


class _Undifferentiable(Function):
    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")
