"""Modules that compute their activations again in backward: `checkpoint_wrapper(module)`."""

import abc
import enum
import functools

import wisp
from wisp.utils.checkpoint import checkpoint

__all__ = [
    "ActivationWrapper",
    "CheckpointImpl",
    "CheckpointWrapper",
    "apply_activation_checkpointing",
    "checkpoint_wrapper",
    "offload_wrapper",
]
_PREFIX = "_checkpoint_wrapped_module"


class CheckpointImpl(enum.Enum):
    """The two ways of `utils.checkpoint`."""

    REENTRANT, NO_REENTRANT = 1, 2


class ActivationWrapper(wisp.nn.Module, abc.ABC):
    """What calls a module in another way, and has its parameters under its names: a base for classes with a `forward`."""

    def __init__(self, mod):
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.register_load_state_dict_pre_hook(self._add_prefix)
        self._register_state_dict_hook(self._remove_prefix)

    @staticmethod
    def _add_prefix(module, state_dict, prefix, *rest):
        for name in [name for name in state_dict if name.startswith(prefix) and not name.startswith(f"{prefix}{_PREFIX}.")]:
            state_dict[f"{prefix}{_PREFIX}.{name[len(prefix) :]}"] = state_dict.pop(name)

    @staticmethod
    def _remove_prefix(module, state_dict, prefix, *rest):
        for name in [name for name in state_dict if name.startswith(f"{prefix}{_PREFIX}.")]:
            state_dict[prefix + name[len(f"{prefix}{_PREFIX}.") :]] = state_dict.pop(name)
        return state_dict

    def named_parameters(self, *args, **kwargs):
        """The parameters under the module's own names."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(f"{_PREFIX}.", ""), parameter

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules[_PREFIX], name)

    def __getitem__(self, key):
        return self._checkpoint_wrapped_module[key]

    @abc.abstractmethod
    def forward(self, *args, **kwargs):
        raise ValueError("Subclasses should implement forward().")


class CheckpointWrapper(ActivationWrapper):
    """Calls a module under `utils.checkpoint`; names of parameters are the module's own."""

    def __init__(self, mod, checkpoint_impl=CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **options):
        super().__init__(mod)
        self._run = checkpoint_fn or functools.partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT, **options)

    def forward(self, *args, **kwargs):
        return self._run(self._checkpoint_wrapped_module, *args, **kwargs)


def checkpoint_wrapper(module, checkpoint_impl=CheckpointImpl.NO_REENTRANT, checkpoint_fn=None, **checkpoint_fn_kwargs):
    """The module under `utils.checkpoint`.

    >>> import wisp
    >>> from wisp.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    >>> layer = checkpoint_wrapper(wisp.nn.Linear(2, 1))
    >>> layer(wisp.ones(1, 2)).sum().backward()
    >>> list(layer.state_dict())
    ['weight', 'bias']
    """
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def offload_wrapper(module):
    """The module as it is: activations stay where they are."""
    return module


def apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda module: True, auto_wrap_policy=None):
    """Wrap the submodules for which `check_fn` is true."""
    for name, child in model.named_children():
        apply_activation_checkpointing(child, checkpoint_wrapper_fn, check_fn)
        if check_fn(child):
            setattr(model, name, checkpoint_wrapper_fn(child))
