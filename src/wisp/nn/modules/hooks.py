"""Hooks of modules: their registration, per module and for all modules, and the call that runs them.

A module without hooks never comes here: `Module.__call__` looks at one flag, `_has_hooks`. Backward hooks are made
of two gates, identity functions around the module's inputs and outputs, whose backward calls the hooks.
"""

import functools
import warnings
from collections import OrderedDict

import wisp
from wisp.utils.hooks import RemovableHandle

# Hooks of all modules, by handle id.
_global_forward_pre_hooks = OrderedDict()
_global_forward_hooks = OrderedDict()
_global_forward_hooks_with_kwargs = OrderedDict()
_global_forward_hooks_always_called = OrderedDict()
_global_backward_pre_hooks = OrderedDict()
_global_backward_hooks = OrderedDict()
_global_call_hooks = (_global_forward_pre_hooks, _global_forward_hooks, _global_backward_pre_hooks, _global_backward_hooks)
_global_buffer_registration_hooks = OrderedDict()
_global_module_registration_hooks = OrderedDict()
_global_parameter_registration_hooks = OrderedDict()
# None, or whether the global backward hooks are of the full kind: the two kinds can't be mixed.
_global_is_full_backward_hook = None


def _add(hooks, hook, extra=(), prepend=False):
    handle = RemovableHandle(hooks, extra_dict=list(extra))
    hooks[handle.id] = hook
    for marks in extra:
        marks[handle.id] = True
    if prepend:
        hooks.move_to_end(handle.id, last=False)
        for marks in extra:
            marks.move_to_end(handle.id, last=False)
    return handle


def _add_global(hooks, hook, extra=()):
    Hooks._has_hooks = True
    return _add(hooks, hook, extra)


def register_module_buffer_registration_hook(hook):
    """Call `hook(module, name, buffer)` whenever any module registers a buffer; a result replaces the buffer."""
    return _add(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook):
    """Call `hook(module, name, submodule)` whenever any module registers a submodule; a result replaces it."""
    return _add(_global_module_registration_hooks, hook)


def register_module_parameter_registration_hook(hook):
    """Call `hook(module, name, parameter)` whenever any module registers a parameter; a result replaces it."""
    return _add(_global_parameter_registration_hooks, hook)


def register_module_forward_pre_hook(hook):
    """Call `hook(module, args)` before the forward of every module."""
    return _add_global(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """Call `hook(module, args, output)` after the forward of every module.

    >>> import wisp
    >>> seen = []
    >>> handle = wisp.nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__))
    >>> with handle:
    ...     _ = wisp.nn.Sequential(wisp.nn.ReLU())(wisp.zeros(2))
    >>> seen
    ['ReLU', 'Sequential']
    """
    extra = [_global_forward_hooks_with_kwargs] * with_kwargs + [_global_forward_hooks_always_called] * always_call
    return _add_global(_global_forward_hooks, hook, extra)


def register_module_full_backward_pre_hook(hook):
    """Call `hook(module, grad_output)` before the backward of every module."""
    return _add_global(_global_backward_pre_hooks, hook)


def _register_global_backward(hook, full):
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook not in (None, full):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use only one of them."
        )
    _global_is_full_backward_hook = full
    return _add_global(_global_backward_hooks, hook)


def register_module_backward_hook(hook):
    """The old form of `register_module_full_backward_hook`: `grad_input` is that of the last operator only."""
    return _register_global_backward(hook, False)


def register_module_full_backward_hook(hook):
    """Call `hook(module, grad_input, grad_output)` when the gradients of any module's inputs are known."""
    return _register_global_backward(hook, True)


class BackwardHookFunction(wisp.autograd.Function):
    # Identity whose backward hands the gradients to a callable and passes on what that returns.
    @staticmethod
    def forward(ctx, on_backward, *tensors) -> tuple:
        ctx.on_backward = on_backward
        ctx.set_materialize_grads(False)
        return tensors

    @staticmethod
    def backward(ctx, *grads):
        return (None, *ctx.on_backward(grads))


class _BackwardHooks:
    """The backward hooks of one call of a module: a gate after its outputs, and one before its inputs."""

    def __init__(self, module, pre_hooks, hooks):
        self.module, self.pre_hooks, self.hooks = module, pre_hooks, hooks
        self.input_count, self.input_places = 0, []
        self.output_count, self.output_places = 0, []
        self.grad_output = None

    @staticmethod
    def _pass(values, on_backward):
        """Send those of `values` that require grad through a gate; returns the values and the places changed."""
        places = [i for i, v in enumerate(values) if isinstance(v, wisp.Tensor) and v.requires_grad]
        if not places or not wisp.is_grad_enabled():
            return values, []
        passed = BackwardHookFunction.apply(on_backward, *(values[i] for i in places))
        result = list(values)
        for place, tensor in zip(places, passed):
            result[place] = tensor
        return (type(values)(*result) if hasattr(values, "_fields") else tuple(result)), places

    @staticmethod
    def _spread(places, grads, count):
        full = [None] * count
        for place, grad in zip(places, grads):
            full[place] = grad
        return tuple(full)

    def _run(self, hooks, grads, what, call):
        for hook in hooks:
            changed = call(hook, grads)
            if changed is None:
                continue
            changed = changed if isinstance(changed, tuple) else (changed,)
            if len(changed) != len(grads):
                raise RuntimeError(f"{what}, got {len(changed)}, but expected {len(grads)}")
            grads = changed
        return grads

    def gate_inputs(self, args):
        self.input_count = len(args)
        args, self.input_places = self._pass(args, self._inputs_backward)
        return args

    def gate_outputs(self, result):
        if not isinstance(result, (wisp.Tensor, tuple)):
            warnings.warn(
                f"For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received {type(result)}",
                stacklevel=5,
            )
            return result
        single = not isinstance(result, tuple)
        values = (result,) if single else result
        self.output_count = len(values)
        values, self.output_places = self._pass(values, self._outputs_backward)
        return values[0] if single else values

    def _outputs_backward(self, grads):
        grad_output = self._spread(self.output_places, grads, self.output_count)
        grad_output = self._run(
            self.pre_hooks, grad_output, "Backward pre hook returned an invalid number of grad_output", lambda hook, g: hook(self.module, g)
        )
        self.grad_output = grad_output
        if not self.input_places:  # no gradient will arrive at the inputs: the hooks' turn is now
            if self.hooks:
                warnings.warn(
                    "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require "
                    "gradients: grad_input is None there.",
                    stacklevel=5,
                )
            for hook in self.hooks:
                changed = hook(self.module, (None,) * self.input_count, grad_output)
                if changed is not None and not (isinstance(changed, tuple) and all(g is None for g in changed)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should always return None or None for all gradients."
                    )
        return tuple(grad_output[i] for i in self.output_places)

    def _inputs_backward(self, grads):
        grad_output, self.grad_output = self.grad_output, None
        if grad_output is None:  # it did not come by the outputs: a second derivative
            return grads
        grad_input = self._spread(self.input_places, grads, self.input_count)
        grad_input = self._run(
            self.hooks,
            grad_input,
            "Backward hook returned an invalid number of grad_input",
            lambda hook, g: hook(self.module, g, grad_output),
        )
        return tuple(grad_input[i] for i in self.input_places)


def _first_tensor(value):
    while not isinstance(value, wisp.Tensor):
        if isinstance(value, dict):
            value = next((v for v in value.values() if isinstance(v, wisp.Tensor)), None)
        elif isinstance(value, (tuple, list)) and value:
            value = value[0]
        else:
            return None
    return value


def _tensors_only(value):
    return isinstance(value, wisp.Tensor) or isinstance(value, tuple) and all(isinstance(v, wisp.Tensor) for v in value)


def _warn_of_old_hooks(args, result, node):
    """The old hooks see the last node of a module only: what they will miss."""
    what = ""
    if not _tensors_only(result):
        what = "on a Module that does not return a single Tensor or a tuple of Tensors"
    elif not _tensors_only(args):
        what = "on a Module that does not take as input a single Tensor or a tuple of Tensors"
    else:
        results = result if isinstance(result, tuple) else (result,)
        before = {arg.grad_fn for arg in args if arg.grad_fn is not None}
        if len({r.grad_fn for r in results if r.grad_fn is not None}) > 1:
            what = "when outputs are generated by different autograd Nodes"
        elif {n for n, _ in node.next_functions if n is not None and n.name() != "torch::autograd::AccumulateGrad"} - before:
            what = "when the forward contains multiple autograd Nodes"
    if what:
        warnings.warn(
            f"Using a non-full backward hook {what} is deprecated and will be removed in future versions. This hook will be missing some "
            "gradients. Please use register_full_backward_hook to get the documented behavior.",
            FutureWarning,
            stacklevel=4,
        )


class _MadeWhenAsked:
    """A dictionary of hooks: most modules never have one. (No `__getattr__` is asked, which a subclass may have of its own.)"""

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, module, owner=None):
        if module is None:
            return self
        hooks = module.__dict__[self.name] = OrderedDict()
        return hooks


class Hooks:
    """The part of `Module` that registers hooks and calls a module that has some."""

    # True on an instance once it had a hook, True here while there are global hooks. On a compiled instance without hooks it is what tells
    # the call to run in a region (module_call.cpp).
    _has_hooks = False
    # None, or whether this module's backward hooks are of the full kind.
    _is_full_backward_hook = None

    _forward_pre_hooks = _MadeWhenAsked()
    _forward_pre_hooks_with_kwargs = _MadeWhenAsked()
    _forward_hooks = _MadeWhenAsked()
    _forward_hooks_with_kwargs = _MadeWhenAsked()
    _forward_hooks_always_called = _MadeWhenAsked()
    _backward_pre_hooks = _MadeWhenAsked()
    _backward_hooks = _MadeWhenAsked()
    _state_dict_pre_hooks = _MadeWhenAsked()
    _state_dict_hooks = _MadeWhenAsked()
    _load_state_dict_pre_hooks = _MadeWhenAsked()
    _load_state_dict_post_hooks = _MadeWhenAsked()

    def _add_hook(self, hooks, hook, extra=(), prepend=False):
        self.__dict__["_has_hooks"] = True
        return _add(hooks, hook, extra, prepend)

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Call `hook(module, args)` before each forward; a result other than None replaces the arguments.

        >>> import wisp
        >>> layer = wisp.nn.Identity()
        >>> handle = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        >>> layer(wisp.zeros(2))
        tensor([1., 1.])
        """
        extra = [self._forward_pre_hooks_with_kwargs] * with_kwargs
        return self._add_hook(self._forward_pre_hooks, hook, extra, prepend)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Call `hook(module, args, output)` after each forward; a result other than None replaces the output.

        >>> import wisp
        >>> layer = wisp.nn.Linear(2, 3)
        >>> handle = layer.register_forward_hook(lambda module, args, output: print(tuple(output.shape)))
        >>> _ = layer(wisp.zeros(5, 2))
        (5, 3)
        """
        extra = [self._forward_hooks_with_kwargs] * with_kwargs + [self._forward_hooks_always_called] * always_call
        return self._add_hook(self._forward_hooks, hook, extra, prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Call `hook(module, grad_output)` before the module's backward; a result replaces `grad_output`."""
        return self._add_hook(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """Call `hook(module, grad_input, grad_output)` when the inputs' gradients are known.

        >>> import wisp
        >>> layer = wisp.nn.Identity()
        >>> handle = layer.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0] * 2,))
        >>> x = wisp.ones(2, requires_grad=True)
        >>> layer(x).sum().backward()
        >>> x.grad
        tensor([2., 2.])
        """
        self._set_backward_kind(True)
        return self._add_hook(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook):
        """The old form of `register_full_backward_hook`: `grad_input` is that of the last operator only."""
        self._set_backward_kind(False)
        return self._add_hook(self._backward_hooks, hook)

    def _set_backward_kind(self, full):
        if self._is_full_backward_hook not in (None, full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of them."
            )
        self._is_full_backward_hook = full

    def _call_with_hooks(self, args, kwargs):
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        return self._call_hooked(args, kwargs)

    def _call_hooked(self, args, kwargs):
        hooked = any(_global_call_hooks)
        if not hooked:
            if Hooks._has_hooks:
                Hooks._has_hooks = False
            hooked = any(
                self.__dict__.get(name) for name in ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
            )
        if not hooked:  # all of them were removed: back to the fast path
            if self._compiled_call_impl is None:
                self.__dict__.pop("_has_hooks", None)
            elif not Hooks._has_hooks:
                self.__dict__["_has_hooks"] = wisp._core._compiled_module(self._compiled_call_impl)
            return self.forward(*args, **kwargs)

        result, called = None, set()
        try:
            for key, hook in (*_global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()):
                args, kwargs = self._run_pre_hook(key, hook, args, kwargs)
            backward = self._backward_hooks_of_call()
            if backward is not None:
                args = backward.gate_inputs(args)
            result = self.forward(*args, **kwargs)
            for key, hook in (*_global_forward_hooks.items(), *self._forward_hooks.items()):
                called.add(key)
                changed = self._run_forward_hook(key, hook, args, kwargs, result)
                result = result if changed is None else changed
            if backward is not None:
                result = backward.gate_outputs(result)
            self._attach_old_backward_hooks(args, result)
            return result
        except Exception:
            self._run_always_called(called, args, kwargs, result)
            raise

    def _call_impl(self, *args, **kwargs):
        return self._call_hooked(args, kwargs)

    def _run_pre_hook(self, key, hook, args, kwargs):
        if key not in self._forward_pre_hooks_with_kwargs:
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
            return args, kwargs
        changed = hook(self, args, kwargs)
        if changed is None:
            return args, kwargs
        if not (isinstance(changed, tuple) and len(changed) == 2):
            raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
        return changed

    def _run_forward_hook(self, key, hook, args, kwargs, result):
        if key in self._forward_hooks_with_kwargs or key in _global_forward_hooks_with_kwargs:
            return hook(self, args, kwargs, result)
        return hook(self, args, result)

    def _run_always_called(self, called, args, kwargs, result):
        for marks, hooks in (
            (_global_forward_hooks_always_called, _global_forward_hooks),
            (self._forward_hooks_always_called, self._forward_hooks),
        ):
            for key in marks:
                if key in hooks and key not in called:
                    try:
                        self._run_forward_hook(key, hooks[key], args, kwargs, result)
                    except Exception as error:
                        warnings.warn(
                            "forward hook with ``always_call=True`` raised an exception that was silenced "
                            f"as another error was raised in forward: {error}",
                            stacklevel=2,
                        )

    def _backward_hooks_of_call(self):
        full = [*_global_backward_hooks.values()] if _global_is_full_backward_hook is True else []
        full += [*self._backward_hooks.values()] if self._is_full_backward_hook is True else []
        pre = [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
        return _BackwardHooks(self, pre, full) if full or pre else None

    def _attach_old_backward_hooks(self, args, result):
        hooks = [*_global_backward_hooks.values()] if _global_is_full_backward_hook is False else []
        hooks += [*self._backward_hooks.values()] if self._is_full_backward_hook is False else []
        tensor = _first_tensor(result) if hooks else None
        if tensor is not None and tensor.grad_fn is not None:
            for hook in hooks:
                tensor.grad_fn.register_hook(functools.partial(hook, self))
            _warn_of_old_hooks(args, result, tensor.grad_fn)
