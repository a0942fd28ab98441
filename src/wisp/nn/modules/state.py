"""Saving and loading of a module's state: `state_dict`, `load_state_dict`, and their hooks."""

import warnings
import weakref
from collections import OrderedDict, namedtuple

import wisp
from wisp.nn.modules.hooks import _add
from wisp.nn.parameter import Parameter, is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"
swap_on_conversion = False  # torch.__future__ sets it: loading asks `Tensor.module_load` what to put in a parameter's place


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ("missing_keys", "unexpected_keys"))):
    """What `load_state_dict` returns."""

    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class _WrappedHook:
    """A load hook; one that wants its module gets it as first argument, held weakly."""

    def __init__(self, hook, module=None):
        self.hook = hook
        self.module = None if module is None else weakref.ref(module)

    def __call__(self, *args, **kwargs):
        if self.module is None:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self):
        return {"hook": self.hook, "module": None if self.module is None else self.module()}

    def __setstate__(self, state):
        self.__init__(state["hook"], state["module"])


class State:
    """The part of `Module` that saves and loads."""

    _version = 1

    def get_extra_state(self):
        """Override to put more than parameters and buffers into the state dict; any picklable object."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called. "
            "A module that overrides set_extra_state() must override get_extra_state() too."
        )

    def set_extra_state(self, state):
        """Override to take back what `get_extra_state` saved."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called. "
            "A module that overrides get_extra_state() must override set_extra_state() too."
        )

    def register_state_dict_pre_hook(self, hook):
        """Call `hook(module, prefix, keep_vars)` before `state_dict` is made."""
        return _add(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook):
        """Call `hook(module, state_dict, prefix, local_metadata)` afterwards; it may change the dict in place."""
        hook._from_public_api = True
        return _add(self._state_dict_hooks, hook)

    def _register_state_dict_hook(self, hook):
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously "
                "registered via register_state_dict_post_hook"
            )
        return _add(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook):
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`
        before this module takes its part of a state dict."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return _add(self._load_state_dict_pre_hooks, _WrappedHook(hook, self if with_module else None))

    def register_load_state_dict_post_hook(self, hook):
        """Call `hook(module, incompatible_keys)` after loading; it may change the lists of keys in place."""
        return _add(self._load_state_dict_post_hooks, hook)

    def _own_tensors(self):
        """Parameters and persistent buffers, with their names."""
        if not self._buffers:
            return self._parameters.items()
        skipped = self._non_persistent_buffers_set
        return (*self._parameters.items(), *(item for item in self._buffers.items() if item[0] not in skipped))

    def _has_extra_state(self, method):
        return getattr(type(self), method) is not getattr(State, method)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Put this module's own parameters and buffers (not those of its children) into `destination`."""
        for name, tensor in self._own_tensors():
            if tensor is not None:
                destination[prefix + name] = tensor if keep_vars or is_lazy(tensor) else tensor.detach()
        if self._has_extra_state("get_extra_state"):
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """All parameters and persistent buffers by name. They are shared, not copied, and detached.

        >>> import wisp
        >>> list(wisp.nn.Linear(2, 3).state_dict())
        ['weight', 'bias']
        """
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead.", FutureWarning, stacklevel=2)
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 and keep_vars is False else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            changed = hook(self, destination, prefix, local_metadata)
            if not getattr(hook, "_from_public_api", False):
                destination = destination if changed is None else changed
            elif changed is not None:
                raise RuntimeError("state_dict post-hook must return None")
        return destination

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        """Take this module's own entries (not those of its children) out of `state_dict`; collect what is wrong."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = {name: tensor for name, tensor in self._own_tensors() if tensor is not None}
        for name, tensor in own.items():
            key = prefix + name
            if key in state_dict:
                self._load_member(key, name, tensor, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)

        extra_key = prefix + _EXTRA_STATE_KEY_SUFFIX
        if self._has_extra_state("set_extra_state"):
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            begin = len(prefix)
            for key in state_dict:
                if key.startswith(prefix) and key != extra_key:
                    end = key.find(".", begin)
                    if (key[begin:] not in own) if end < 0 else (key[begin:end] not in self._modules):
                        unexpected_keys.append(key)

    def _load_member(self, key, name, tensor, given, assign, error_msgs):
        if not isinstance(given, wisp.Tensor):
            error_msgs.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object '
                f"from checkpoint but received {type(given)}"
            )
            return
        if is_lazy(tensor):
            if is_lazy(given):
                return
            if not assign:
                tensor.materialize(given.shape)
        elif is_lazy(given):
            raise RuntimeError(
                f"{key}: Can't access the shape of an uninitialized parameter or buffer. It is initialized in the model, and its "
                "counterpart in the checkpoint is not: run one forward pass before saving."
            )
        else:
            if tensor.dim() == 0 and given.dim() == 1 and given.shape[0] == 1:  # how very old files keep scalars
                given = given[0]
            if given.shape != tensor.shape:
                error_msgs.append(
                    f"size mismatch for {key}: copying a param with shape {given.shape} from "
                    f"checkpoint, the shape in current model is {tensor.shape}."
                )
                return
        if tensor.is_meta and not given.is_meta and not assign:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the current model, which is a "
                "no-op. (Did you mean to pass `assign=True` to assign items in the state dictionary to their corresponding key in the "
                "module instead of copying them in place?)",
                stacklevel=2,
            )
        try:
            with wisp.no_grad():
                if swap_on_conversion:
                    self._replace_member(name, tensor, tensor.module_load(given, assign=assign), given)
                elif not assign:
                    tensor.copy_(given)
                elif isinstance(tensor, Parameter):
                    if not isinstance(given, Parameter):
                        given = Parameter(given, requires_grad=tensor.requires_grad)
                    else:
                        given.requires_grad_(tensor.requires_grad)
                    self._parameters[name] = given
                else:
                    self._buffers[name] = given
        except Exception as error:
            error_msgs.append(
                f'While copying the parameter named "{key}", whose dimensions in the model are '
                f"{tensor.size()} and whose dimensions in the checkpoint are {given.size()}, "
                f"an exception occurred : {error.args}."
            )

    def _replace_member(self, name, tensor, new, given):
        if new is given or new is tensor:
            raise RuntimeError("module_load returned one of self or other, please .detach() the result if returning one of the inputs")
        members = self._buffers
        if isinstance(tensor, Parameter):
            members, wanted = self._parameters, tensor.requires_grad
            new = new.requires_grad_(wanted) if isinstance(new, Parameter) else Parameter(new, wanted)
        if type(new) is type(tensor):
            wisp.utils.swap_tensors(tensor, new)
        else:
            members[name] = new

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copy the tensors of `state_dict` into this module. Everything that does not fit is listed in one error.

        `strict=False` tolerates missing and unexpected keys, `assign=True` takes the tensors themselves.

        >>> import wisp
        >>> layer = wisp.nn.Linear(2, 3)
        >>> layer.load_state_dict(wisp.nn.Linear(2, 3).state_dict())
        <All keys matched successfully>
        """
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing_keys, unexpected_keys, error_msgs = [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata

        def load(module, entries, prefix):
            local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                local_metadata["assign_to_params_buffers"] = True
            module._load_from_state_dict(entries, prefix, local_metadata, True, missing_keys, unexpected_keys, error_msgs)
            of_children = {}  # in one pass: a search for each child's entries would be quadratic in their number
            begin, last, of_last = len(prefix), None, None
            for key, value in entries.items() if module._modules else ():
                end = key.find(".", begin)
                if end < 0 or not key.startswith(prefix):
                    continue
                name = key[begin:end]
                if name != last:
                    last, of_last = name, of_children.setdefault(name, {})
                of_last[key] = value
            for name, child in module._modules.items():
                if child is not None:
                    load(child, of_children.get(name, {}), f"{prefix}{name}.")
            incompatible = _IncompatibleKeys(missing_keys, unexpected_keys)
            for hook in module._load_state_dict_post_hooks.values():
                if hook(module, incompatible) is not None:
                    raise AssertionError(
                        "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, if "
                        "incompatible_keys need to be modified, it should be done inplace."
                    )

        load(self, state_dict, "")
        load = None  # it holds itself
        if strict:
            for what, keys in (("Unexpected", unexpected_keys), ("Missing", missing_keys)):
                if keys:
                    listed = ", ".join(f'"{key}"' for key in keys)
                    error_msgs.insert(0, f"{what} key(s) in state_dict: {listed}. ")
        if error_msgs:
            listed = "\n\t".join(error_msgs)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}")
        return _IncompatibleKeys(missing_keys, unexpected_keys)
