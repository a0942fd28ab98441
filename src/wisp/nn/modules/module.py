"""Module, the base class of all layers and models."""

import functools
import inspect
import warnings
import weakref

import wisp
from wisp._core import _ModuleBase
from wisp.nn.modules import hooks as _hooks
from wisp.nn.modules import state as _state
from wisp.nn.modules.hooks import (  # noqa: F401  (PyTorch's names live here)
    Hooks,
    RemovableHandle,
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_buffer_registration_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from wisp.nn.modules.registry import Registry
from wisp.nn.modules.state import _EXTRA_STATE_KEY_SUFFIX, State, _IncompatibleKeys  # noqa: F401
from wisp.nn.modules.tree import Tree
from wisp.nn.parameter import Parameter, is_lazy

__all__ = """
    register_module_forward_pre_hook register_module_forward_hook register_module_full_backward_pre_hook
    register_module_backward_hook register_module_full_backward_hook register_module_buffer_registration_hook
    register_module_module_registration_hook register_module_parameter_registration_hook Module""".split()

_REGISTRIES = ("_parameters", "_buffers", "_modules")


def _addindent(text, spaces):
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


def _short(module):
    """A module in a line; by its name alone if it holds tensors, whose text can take longer than the call did."""

    def long(value):
        if isinstance(value, (tuple, list)):
            return len(value) > 99 or any(map(long, value))
        return isinstance(value, wisp.Tensor)

    own = [value for name, value in vars(module).items() if name not in module._parameters and name not in module._buffers]
    return type(module).__name__ if any(map(long, own)) else repr(module)


def _note_module(error, module):
    """Tell in a note of the exception which module raised it, by its path from the outermost module called.

    Runs from the inside out, as the exception leaves the call of one module after another.
    """
    inner, path, note = getattr(error, "_wisp_module", (None, "", None))
    if inner is None:
        text = type(module).__name__ if module._modules else _short(module)
        error._wisp_module = module, "", text
    else:
        name = next((name for name, found in module.named_modules() if found is inner), None)
        if not name:
            return
        path = f"{name}.{path}" if path else name
        error._wisp_module = module, path, note
        text = f"{path}: {note}"
    text = f"in module {text}"
    if not hasattr(error, "add_note"):  # before Python 3.11
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (error.args[0].partition("\nin module ")[0] + f"\n{text}",)
        return
    notes = getattr(error, "__notes__", [])
    error.__notes__ = [line for line in notes if not line.startswith("in module ")] + [text]


def _parse_to(args, kwargs):
    """The arguments of `Module.to`, in any of its forms: (device, dtype, non_blocking, memory_format)."""
    names = ("tensor", "device", "dtype", "non_blocking", "copy", "memory_format")
    unknown = [name for name in kwargs if name not in names]
    if unknown:
        raise TypeError(f"to() got an unexpected keyword argument '{unknown[0]}'")
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    tensor, non_blocking = kwargs.get("tensor"), kwargs.get("non_blocking", False)
    rest = []
    for value in args:
        if isinstance(value, wisp.Tensor):
            tensor = value
        elif isinstance(value, wisp.dtype):
            dtype = value
        elif isinstance(value, bool):
            rest.append(value)
        elif isinstance(value, (str, int, wisp.device)):
            device = value
        elif value is not None:
            raise TypeError(f"to() received an invalid argument of type {type(value).__name__}: {value!r}")
    if rest:
        if dtype is None and tensor is None:
            raise TypeError("to() received an invalid combination of arguments - got (device, bool); write non_blocking=True")
        non_blocking = rest[0]
    if kwargs.get("copy"):
        raise RuntimeError(".to() does not accept copy argument")
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    if device is not None and not isinstance(device, wisp.device):
        device = wisp.device(device) if isinstance(device, str) else wisp.device("cuda", device)
    return device, dtype, non_blocking, kwargs.get("memory_format")


def _forward_unimplemented(self, *input):
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class _CallSignature:
    """What `inspect.signature(module)` shows: calls are made in C, which has none. Classes show that of `__init__`."""

    def __get__(self, module, kind=None):
        if module is None:
            raise AttributeError("__signature__")
        return inspect.Signature(
            [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL), inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)]
        )


def _swapped(param, changed, old_grad, grad):
    """Put the converted values in a parameter's place by `utils.swap_tensors`, whatever its device was, and the gradient likewise."""
    new = Parameter(changed.detach(), param.requires_grad)
    if type(new) is not type(param):
        return False
    param.grad = None
    wisp.utils.swap_tensors(param, new)
    if grad is not None:
        wisp.utils.swap_tensors(old_grad, grad.requires_grad_(old_grad.requires_grad))
        param.grad = old_grad
    return True


def _then_own_registries(set_state):
    @functools.wraps(set_state)
    def __setstate__(self, state):
        set_state(self, state)
        if "_modules" in self.__dict__:
            self._own_registries()

    return __setstate__


def _may_be_buffer(value):
    return value is None or isinstance(value, wisp.Tensor) or hasattr(type(value), "__torch_function__")


class Module(Hooks, State, Tree, _ModuleBase):
    """The base class of layers and models: owns parameters, buffers and other modules, and is called like a function.

    >>> import wisp
    >>> class Model(wisp.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.hidden = wisp.nn.Linear(4, 8)
    ...         self.out = wisp.nn.Linear(8, 2)
    ...
    ...     def forward(self, x):
    ...         return self.out(self.hidden(x).relu())
    >>> model = Model()
    >>> model(wisp.zeros(3, 4)).shape == (3, 2), len(list(model.parameters()))
    (True, 4)
    """

    training: bool
    __signature__ = _CallSignature()

    dump_patches = False
    call_super_init = False
    _members_are_attributes = True

    def __init__(self, *args, **kwargs):
        if not self.call_super_init:
            if kwargs:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        state, owner = self.__dict__, weakref.ref(self)
        for registry in _REGISTRIES:  # called again, as by classes with two bases, it forgets the members
            for name in state.get(registry, ()):
                state.pop(name, None)
        state["training"] = True
        state["_parameters"] = Registry(owner)
        state["_buffers"] = Registry(owner)
        state["_non_persistent_buffers_set"] = set()
        state["_modules"] = Registry(owner)
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        cls._members_are_attributes = cls.__getattr__ is Module.__getattr__  # one of the class's own is asked for its members
        if "__setstate__" in vars(cls):  # it may set the whole `__dict__`
            cls.__setstate__ = _then_own_registries(cls.__setstate__)

    forward = _forward_unimplemented

    # `__call__` is _ModuleBase's, in C: `self.forward(*args, **kwargs)`, or `self._call_with_hooks(args, kwargs)` if
    # `self._has_hooks`; an exception that passes is first shown to `_note_error`.

    def _wrapped_call_impl(self, *args, **kwargs):
        return self(*args, **kwargs)

    def _note_error(self, error):
        _note_module(error, self)

    # ------------------------------------------------------------------ attributes and registries

    def __getattr__(self, name):
        # Only reached for what is no plain attribute: state restored by hand, and members where a subclass has its own `__getattr__`.
        state = self.__dict__
        for registry in _REGISTRIES:
            if name in state.get(registry, ()):
                return state[registry][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name, value):
        state = self.__dict__
        if isinstance(value, Parameter):
            if "_parameters" not in state:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            if name not in state["_parameters"]:
                self._forget_member(name)
            self.register_parameter(name, value)
        elif name in state.get("_parameters", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{wisp.typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if "_modules" not in state:
                raise AttributeError("cannot assign module before Module.__init__() call")
            if name not in state["_modules"]:
                self._forget_member(name)
            self._register_member("_modules", name, value, _hooks._global_module_registration_hooks)
        elif name in state.get("_modules", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{wisp.typename(value)}' as child module '{name}' (torch.nn.Module or None expected)")
            self._register_member("_modules", name, value, _hooks._global_module_registration_hooks)
        elif name in state.get("_buffers", ()):
            if not _may_be_buffer(value):
                raise TypeError(
                    f"cannot assign '{wisp.typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)"
                )
            persistent = getattr(value, "persistent", name not in state["_non_persistent_buffers_set"])
            self._assign_buffer(name, value, persistent)
        elif isinstance(value, wisp.Tensor) and getattr(value, "_is_buffer", False) and "_buffers" in state:
            if name in state and name not in state["_parameters"] and name not in state["_modules"] and name not in state["_buffers"]:
                raise KeyError(f"attribute '{name}' already exists")
            self._forget_member(name)
            self._assign_buffer(name, value, value.persistent)
        elif name in _REGISTRIES and isinstance(value, dict):
            for old in state.get(name, ()):
                state.pop(old, None)
            state[name] = Registry(weakref.ref(self), value)
        else:
            object.__setattr__(self, name, value)
            if name == "__class__" and not getattr(value, "_members_are_attributes", True):
                for member in [member for registry in _REGISTRIES for member in state.get(registry, ())]:
                    state.pop(member, None)

    def __delattr__(self, name):
        state = self.__dict__
        for registry in _REGISTRIES:
            if name in state.get(registry, ()):
                self._own_registries()
                del state[registry][name]
                state["_non_persistent_buffers_set"].discard(name)
                return
        object.__delattr__(self, name)

    def _forget_member(self, name):
        """Make room for `name` in one of the registries: it may be an attribute or an entry of another one."""
        state = self.__dict__
        for registry in _REGISTRIES:
            if name in state[registry]:
                del state[registry][name]
        state["_non_persistent_buffers_set"].discard(name)
        state.pop(name, None)

    def _assign_buffer(self, name, value, persistent):
        # Without the default, for subclasses whose register_buffer has no such argument.
        self.register_buffer(name, value, *() if persistent else (False,))

    def _register_member(self, registry, name, value, hooks):
        for hook in hooks.values():
            changed = hook(self, name, value)
            value = value if changed is None else changed
        self._own_registries()
        self.__dict__[registry][name] = value

    def _own_registries(self):
        """Make registries of this module of dictionaries that came with a `__dict__` set by hand: others would change no attribute here."""
        state = self.__dict__
        for name in _REGISTRIES:
            entries = state.get(name, ())
            if type(entries) is not Registry or entries.owner() is not self:
                state[name] = Registry(weakref.ref(self), entries)

    def _check_member_name(self, kind, name, registry):
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}' if kind == "module" else f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""' + (', got: ""' if kind == "module" else ""))
        if name not in registry and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name, param):
        """Add a parameter (or None, which holds the name's place) under `name`."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self._check_member_name("parameter", name, self._parameters)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{wisp.typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To express "
                    f"'{name}' as a function of another Tensor, compute the value in the forward() method."
                )
        self._register_member("_parameters", name, param, _hooks._global_parameter_registration_hooks)

    def register_buffer(self, name, tensor, persistent=True):
        """Add a tensor that is not trained; `persistent=False` keeps it out of the state dict.

        >>> import wisp
        >>> module = wisp.nn.Module()
        >>> module.register_buffer("steps", wisp.zeros(1))
        >>> [name for name, _ in module.named_buffers()]
        ['steps']
        """
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self._check_member_name("buffer", name, self._buffers)
        if not _may_be_buffer(tensor):
            raise TypeError(f"cannot assign '{wisp.typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        self._register_member("_buffers", name, tensor, _hooks._global_buffer_registration_hooks)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name, module):
        """Add a child module (or None) under `name`."""
        if not isinstance(module, Module) and module is not None:
            hint = "; a function has a layer of its own, such as nn.ReLU() for relu" if callable(module) else ""
            if isinstance(module, type) and issubclass(module, Module):
                hint = f" but the class itself: make a layer with {module.__name__}(...)"
            raise TypeError(f"{wisp.typename(module)} is not a Module subclass{hint}")
        self._check_member_name("module", name, self._modules)
        self._register_member("_modules", name, module, _hooks._global_module_registration_hooks)

    def register_module(self, name, module):
        """Another name of `add_module`."""
        self.add_module(name, module)

    # ------------------------------------------------------------------ modes and gradients

    def train(self, mode=True):
        """Switch dropout, batch normalisation and the like to training (or, with False, to evaluation)."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """The same as `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Let autograd record operations on the parameters, or freeze them."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Drop the gradients of all parameters, or set them to zero."""
        for param in self.parameters():
            if param.grad is None:
                continue
            if set_to_none:
                param.grad = None
            else:
                grad = param.grad
                grad.requires_grad_(False) if grad.grad_fn is None else grad.detach_()
                grad.zero_()

    # ------------------------------------------------------------------ dtype and device

    def _apply(self, fn, recurse=True):
        """Replace every parameter's data (and gradient) and every buffer by `fn` of it. Parameters stay the same
        objects, so that an optimizer made before still sees them."""
        self._own_registries()
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, param in self._parameters.items():
            if param is None:
                continue
            old_grad = param.grad
            with wisp.no_grad():
                changed = fn(param)
                grad = None if old_grad is None else fn(old_grad)
            if _state.swap_on_conversion and _swapped(param, changed, old_grad, grad):
                continue
            if (changed.device.type == "meta") != (param.device.type == "meta") and not hasattr(param, "device_mesh"):
                self._parameters[name] = param = Parameter(changed, param.requires_grad)
            elif changed is not param:
                param.data = changed
            if grad is not old_grad:
                if type(grad) is type(old_grad) is wisp.Tensor and param.grad is old_grad and grad.device.type != "meta":
                    old_grad.data = grad  # who holds it sees the new one
                    grad = old_grad
                param.grad = grad.requires_grad_(old_grad.requires_grad)
        for name, buffer in self._buffers.items():
            if is_lazy(buffer):
                buffer.data = fn(buffer)
            elif buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args, **kwargs):
        """Move parameters and buffers to a device, a floating-point dtype or a memory format, in place.

        Forms: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`, `to(memory_format=...)`.

        >>> import wisp
        >>> wisp.nn.Linear(2, 3).to(wisp.float64).weight.dtype == wisp.float64
        True
        """
        device, dtype, non_blocking, memory_format = _parse_to(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
        if dtype is not None and dtype.is_complex:
            warnings.warn(
                "Complex modules are a new feature under active development whose design may change, and some modules might not work as "
                "expected when using complex tensors as parameters or buffers.",
                stacklevel=2,
            )

        def convert(t):
            new_dtype = dtype if t.is_floating_point() or t.is_complex() else None
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device=device or t.device, dtype=new_dtype or t.dtype, non_blocking=non_blocking, memory_format=memory_format)
            return t.to(device=device or t.device, dtype=new_dtype or t.dtype, non_blocking=non_blocking)

        return self._apply(convert)

    def _cast_members(self, dtype):
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self):
        """Floating-point parameters and buffers as float32."""
        return self._cast_members(wisp.float32)

    def double(self):
        """Floating-point parameters and buffers as float64."""
        return self._cast_members(wisp.float64)

    def half(self):
        """Floating-point parameters and buffers as float16."""
        return self._cast_members(wisp.float16)

    def bfloat16(self):
        """Floating-point parameters and buffers as bfloat16."""
        return self._cast_members(wisp.bfloat16)

    def type(self, dst_type):
        """All parameters and buffers as `dst_type`."""
        return self._apply(lambda t: t.type(dst_type))

    def cuda(self, device=None):
        """Move everything to a GPU."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self):
        """Move everything to the CPU."""
        return self._apply(lambda t: t.cpu())

    def to_empty(self, *, device, recurse=True):
        """Move to `device` without copying: the elements are uninitialized there."""
        return self._apply(lambda t: wisp.empty_like(t, device=device), recurse=recurse)

    def share_memory(self):
        """Put everything into memory that other processes can share."""
        return self._apply(lambda t: t.share_memory_())

    _compiled_call_impl = None

    def compile(self, *args, **kwargs):
        """Call this module in a compiled region from now on, hooks included; the arguments are those of `wisp.compile`.

        >>> import wisp
        >>> layer = wisp.nn.Linear(2, 3)
        >>> layer.compile()
        >>> layer(wisp.zeros(1, 2)).shape
        torch.Size([1, 3])
        """
        self.__dict__["_compiled_call_impl"] = wisp.compile(self._call_impl, *args, **kwargs)
        self.__dict__["_has_hooks"] = True  # the way to _call_with_hooks, which looks for hooks

    # ------------------------------------------------------------------ printing, copying

    def _get_name(self):
        return self.__class__.__name__

    def extra_repr(self):
        """Override to show a module's settings in its `repr`."""
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        lines = extra_lines + child_lines
        if not lines:
            body = ""
        elif len(extra_lines) == 1 and not child_lines:
            body = extra_lines[0]
        else:
            body = "\n  " + "\n  ".join(lines) + "\n"
        return f"{self._get_name()}({body})"

    def _repr_html_(self):
        from wisp.viz import module_html

        return module_html(self)

    def __dir__(self):
        names = {*dir(type(self)), *self.__dict__, *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if not name[0].isdigit())

    def __reduce_ex__(self, protocol):
        """A `__getstate__` of a program's own sees members where PyTorch has them: in their registries, not among plain attributes."""
        state, found = self.__dict__, {}
        if type(self).__getstate__ is not Module.__getstate__:
            found = {name: state.pop(name) for registry in _REGISTRIES for name in state.get(registry, ()) if name in state}
        try:
            return super().__reduce_ex__(protocol)
        finally:
            state.update(found)

    def __getstate__(self):
        compiled = {"_compiled_call_impl"} if self.__dict__.get("_has_hooks") is True else {"_compiled_call_impl", "_has_hooks"}
        return {name: value for name, value in self.__dict__.items() if name not in compiled}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._own_registries()
        self.__dict__.setdefault("_non_persistent_buffers_set", set())

    def _replicate_for_data_parallel(self):
        replica = self.__new__(type(self))
        replica.__setstate__(self.__dict__)
        replica._parameters = {}
        return replica
