"""Calling a module with other tensors in place of its parameters and buffers."""

import contextlib
import warnings

import wisp
from wisp import _reference

__all__ = ["functional_call"]


_ABSENT = object()


def _tensor_names(module):
    """(module, registry, name) of every parameter and buffer by its full name, tied ones under every name."""
    places = {}
    for prefix, child in module.named_modules(remove_duplicate=False):
        for registry in (child._parameters, child._buffers):
            for name in registry:
                places[f"{prefix}.{name}" if prefix else name] = (registry, name)
    return places


def _places_of(module, names):
    places = {}
    for full_name in names:
        path, _, name = full_name.rpartition(".")
        owner = module.get_submodule(path)
        for registry in (owner._parameters, owner._buffers):
            if name in registry:
                places[full_name] = registry, name
    return places


@contextlib.contextmanager
def _reparametrize_module(module, parameters_and_buffers, tie_weights=False, strict=False):
    given = dict(parameters_and_buffers)
    for value in given.values():
        if value is not None and not isinstance(value, wisp.Tensor):
            raise TypeError(f"{value} is not an instance of torch.Tensor")
    places = _tensor_names(module) if tie_weights or strict else _places_of(module, given)  # a module may contain itself
    unexpected = [name for name in parameters_and_buffers if name not in places]
    if tie_weights:
        owners = {}  # all names of the same tensor
        for full_name, (registry, name) in places.items():
            owners.setdefault(id(registry[name]), []).append(full_name)
        for names in owners.values():
            values = {id(given[n]): given[n] for n in names if n in given}
            if len(values) > 1:
                raise ValueError(
                    f"functional_call got multiple values for keys {sorted(n for n in names if n in given)}, which are tied. Consider "
                    "using tie_weights=False"
                )
            for name in names if values else ():
                given[name] = next(iter(values.values()))
    if strict:
        missing = [name for name in places if name not in given]
        if unexpected or missing:
            parts = [
                f"{kind} key(s): {', '.join(map(repr, sorted(names)))}."
                for kind, names in (("Unexpected", unexpected), ("Missing", missing))
                if names
            ]
            raise RuntimeError("\n\t".join([f"Error(s) in reparametrizing for {module._get_name()}:", *parts]))
    for full_name in unexpected:  # an attribute, of which forward may make use
        path, _, name = full_name.rpartition(".")
        owner = module.get_submodule(path)
        if not isinstance(owner.__dict__.get(name), (wisp.Tensor, type(None))):
            raise TypeError(f"attribute `{full_name}`: {owner.__dict__[name]} is not an instance of torch.Tensor")
        places[full_name] = owner._parameters if isinstance(given[full_name], wisp.nn.Parameter) else owner.__dict__, name
    swapped = [(*places[name], value) for name, value in given.items()]
    originals = [(registry, name, registry.get(name, _ABSENT)) for registry, name, _ in swapped]
    try:
        for registry, name, value in swapped:
            registry[name] = value
        yield
    finally:
        for (registry, name, value), full_name in zip(originals, given):
            if full_name in parameters_and_buffers and isinstance(parameters_and_buffers, dict):
                current = registry[name]  # a buffer that the module replaced is handed back
                if current is not given[full_name]:
                    parameters_and_buffers[full_name] = current
            if value is _ABSENT:
                del registry[name]
            else:
                registry[name] = value


def functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Call `module` with the tensors of a dict in place of its own; the module is the same afterwards.

    >>> import wisp
    >>> layer = wisp.nn.Linear(2, 2, bias=False)
    >>> wisp.nn.utils.stateless.functional_call(layer, {"weight": wisp.eye(2)}, wisp.ones(1, 2))
    tensor([[1., 1.]])
    """
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated: it may go in a later release. Please use `torch.func.functional_call`.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)


def _functional_call(module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False):
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights, strict):
        return module(*args, **(kwargs or {}))


_reference.attach(__name__, globals())


def swap_tensor(module, name, tensor, allow_missing=False):
    """Put a tensor in the place of a module's parameter or buffer, which is returned."""
    for registry in (module._parameters, module._buffers):
        if name in registry:
            before, registry[name] = registry[name], tensor
            return before
    if not allow_missing and not hasattr(module, name):
        raise AttributeError(f"{type(module).__name__} has no attribute {name!r}")
    before = module.__dict__.pop(name, None)
    module._buffers[name] = tensor
    return before


class _NamedMemberAccessor:
    """The parameters and buffers of a module by their dotted names."""

    def __init__(self, module):
        self.module = module

    def _owner(self, name):
        path, _, last = name.rpartition(".")
        return self.module.get_submodule(path), last

    def get_submodule(self, name):
        """The module of a name."""
        return self.module.get_submodule(name)

    def get_tensor(self, name):
        """The parameter or buffer of a name."""
        owner, last = self._owner(name)
        return getattr(owner, last)

    def set_tensor(self, name, value):
        """Put a tensor in the place of a parameter or buffer."""
        self.swap_tensor(name, value)

    def swap_tensor(self, name, value, allow_missing=False):
        """Put a tensor in the place of another, which is returned."""
        owner, last = self._owner(name)
        return swap_tensor(owner, last, value, allow_missing)

    def del_tensor(self, name):
        """Take a parameter or buffer out."""
        owner, last = self._owner(name)
        delattr(owner, last)

    def named_tensors(self, remove_duplicate=True):
        """The names and tensors of the module."""
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)
