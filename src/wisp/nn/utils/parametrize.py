"""Parametrizations: a tensor of a module as a function of another one, which is trained in its place.

A parametrized module gets a class of its own, in which the tensor's name is a property.
"""

import collections.abc
import copy
from contextlib import contextmanager

import wisp
from wisp import _reference
from wisp.nn.modules.container import ModuleDict, ModuleList
from wisp.nn.parameter import Parameter

__all__ = [
    "cached",
    "ParametrizationList",
    "register_parametrization",
    "is_parametrized",
    "remove_parametrizations",
    "type_before_parametrizations",
    "transfer_parametrizations_and_params",
]

_cache_enabled = 0
_cache = {}


@contextmanager
def cached():
    """Compute each parametrized tensor once within the block, however often it is read."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register_parameter_or_buffer(module, name, tensor):
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _is_tensors(value):
    return isinstance(value, collections.abc.Sequence) and all(isinstance(v, wisp.Tensor) for v in value)


def _check_same(before, tensor, text):
    """`text` says what ({0}) was ({1}) and is ({2}), where a tensor has not the dtype and shape from before."""
    for what, old, new in zip(("dtype", "shape"), before, (tensor.dtype, tensor.shape)):
        if old != new:
            raise ValueError(text.format(what, old, new))


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and the original tensor (`original`, or `original0`, `original1`, ...)."""

    def __init__(self, modules, original, unsafe=False):
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        dtype, shape = original.dtype, original.shape
        with wisp.no_grad():
            new = original
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        pass
        if not isinstance(new, wisp.Tensor) and not isinstance(new, collections.abc.Sequence):
            raise ValueError(f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(new).__name__}")
        self.is_tensor = isinstance(new, wisp.Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if original.dtype != new.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}"
                )
            if original.device != new.device:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the device.\n"
                    f"original.device: {original.device}\nright_inverse(original).device: {new.device}"
                )
            if new is not original:
                original.data = new.detach()
            _register_parameter_or_buffer(self, "original", original)
        else:
            if not _is_tensors(new):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                    f"Got elements of the sequence with type {[type(v).__name__ for v in new]}"
                )
            for i, part in enumerate(new):
                part = Parameter(part.detach(), original.requires_grad) if isinstance(original, Parameter) else part
                _register_parameter_or_buffer(self, f"original{i}", part)
        if not unsafe:
            self._check(dtype, shape)

    def _check(self, dtype, shape):
        result = self()
        if not isinstance(result, wisp.Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(result).__name__}.")
        _check_same(
            (dtype, shape),
            result,
            "Registering a parametrization may not change the {0} of the tensor, unless `unsafe` flag is enabled.\n"
            "unparametrized {0}: {1}\nparametrized {0}: {2}",
        )

    def _originals(self):
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value):
        """Set the original so that the parametrized tensor becomes `value`, as far as the parametrizations allow."""
        with wisp.no_grad():
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            values = [value] if self.is_tensor else value
            if self.is_tensor and not isinstance(value, wisp.Tensor):
                raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
            if not self.is_tensor and not _is_tensors(value):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
            if len(values) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of length {len(values)}."
                )
            for original, new in zip(self._originals(), values):
                if original.dtype != new.dtype:
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {new.dtype} while `original` has dtype {original.dtype}"
                    )
                original.data = new.detach()

    def forward(self):
        x = self[0](*self._originals())
        for i in range(1, len(self)):
            x = self[i](x)
        return x


def _inject_new_class(module):
    cls = type(module)

    def deepcopy(self, memo):
        copied = memo.get(id(self))
        if copied is None:
            copied = self.__new__(type(self))
            memo[id(self)] = copied
            copied.__setstate__(copy.deepcopy(self.__dict__, memo))
            _give_own_class(copied)
        return copied

    def getstate(self):
        raise RuntimeError("Serialization of parametrized modules is only supported through state_dict().")

    module.__class__ = type(
        f"Parametrized{cls.__name__}", (cls,), {"__getstate__": getstate, "__deepcopy__": deepcopy, "_is_parametrized_class": True}
    )


def _give_own_class(module):
    """A copy shares its class with the original; changes to one must not show in the other."""
    cls = type(module)
    module.__class__ = type(cls.__name__, cls.__bases__, dict(cls.__dict__))


def _inject_property(module, tensor_name):
    def get(self):
        if not _cache_enabled:
            return self.parametrizations[tensor_name]()
        key = (id(self), tensor_name)
        if key not in _cache:
            _cache[key] = self.parametrizations[tensor_name]()
        return _cache[key]

    def set_original(self, value):
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get, set_original))


def _check_inverse(inverse, value):
    if not isinstance(inverse, wisp.Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got {type(inverse).__name__}")
    _check_same(
        (value.dtype, value.shape),
        inverse,
        "The tensor returned by parametrization.right_inverse must have the same {0} as the parametrized one.\nbefore: {1}\nreturned: {2}",
    )


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Make `module.<tensor_name>` the result of `parametrization`, a module, of a trained original.

    >>> import wisp
    >>> class Symmetric(wisp.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = wisp.nn.Linear(3, 3)
    >>> _ = wisp.nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> wisp.equal(layer.weight, layer.weight.T)
    True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        current = module.parametrizations[tensor_name]
        if not unsafe:
            value = getattr(module, tensor_name)
            with wisp.no_grad():
                new = parametrization(value)
            if not isinstance(new, wisp.Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(new).__name__}.")
            _check_same(
                (value.dtype, value.shape),
                new,
                "Registering a parametrization may not change the {0} of the tensor, unless the `unsafe` flag is enabled.\n"
                "before: {1}\nafter: {2}",
            )
            if hasattr(parametrization, "right_inverse"):
                try:
                    with wisp.no_grad():
                        inverse = parametrization.right_inverse(new)
                except NotImplementedError:
                    inverse = None
                if inverse is not None:
                    _check_inverse(inverse, value)
        current.append(parametrization)
        current.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        # A name such as "keys" is one of ModuleDict's methods too: write to its registry, not through its attributes.
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'")
    return module


def is_parametrized(module, tensor_name=None):
    """Whether a module has parametrizations, or one of the given tensor."""
    parametrizations = module.__dict__.get("parametrizations")
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Make a tensor an ordinary one again, with its present value or with that of the original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parametrizations = module.parametrizations[tensor_name]
    if parametrizations.is_tensor:
        original = parametrizations.original
        if leave_parametrized:
            with wisp.no_grad():
                value = getattr(module, tensor_name)
            original.data = value.detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register_parameter_or_buffer(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module):
    """The class of a module, or the one it had before its first parametrization."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Give `to_module` the parametrizations and parameters of `from_module`."""
    if not is_parametrized(from_module):
        return to_module
    if tensor_name is not None and not is_parametrized(from_module, tensor_name):
        raise AssertionError(f"{tensor_name} is not parametrized in {from_module}")
    names = [tensor_name] if tensor_name is not None else list(from_module.parametrizations)
    for name in names:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization, unsafe=source.unsafe)
        target = to_module.parametrizations[name]
        for new, old in zip(target._originals(), source._originals()):
            new.data = old.detach().clone()
    return to_module


_reference.attach(__name__, globals())
