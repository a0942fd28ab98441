"""Policies that say which modules of a model become units of their own."""

import contextlib
import functools

import wisp

__all__ = """
    CustomPolicy ModuleWrapPolicy always_wrap_policy enable_wrap lambda_auto_wrap_policy size_based_auto_wrap_policy
    transformer_auto_wrap_policy wrap""".split()


def always_wrap_policy(*args, **kwargs):
    """Every module."""
    return True


def lambda_auto_wrap_policy(module, recurse, nonwrapped_numel, lambda_fn):
    """The modules of which `lambda_fn(module)` is true."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(module, recurse, nonwrapped_numel, transformer_layer_cls):
    """The modules of some classes: the layers of a transformer."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module, recurse, nonwrapped_numel, min_num_params=int(1e8), force_leaf_modules=None, exclude_wrap_modules=None
):
    """Modules with at least `min_num_params` parameters that no module inside of them has taken.

    >>> import functools, wisp
    >>> from wisp.distributed.fsdp.wrap import size_based_auto_wrap_policy
    >>> policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100)
    >>> policy(wisp.nn.Linear(10, 10), recurse=False, nonwrapped_numel=110)
    True
    """
    leaves = tuple(force_leaf_modules or size_based_auto_wrap_policy.FORCE_LEAF_MODULES)
    excluded = tuple(exclude_wrap_modules or size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES)
    large = nonwrapped_numel >= min_num_params
    return large and not isinstance(module, leaves if recurse else excluded)


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {wisp.nn.ModuleList, wisp.nn.ModuleDict}
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {wisp.nn.MultiheadAttention}


class ModuleWrapPolicy:
    """The modules of some classes.

    >>> import wisp
    >>> policy = wisp.distributed.fsdp.wrap.ModuleWrapPolicy({wisp.nn.Linear})
    >>> policy(wisp.nn.Linear(1, 1), recurse=False, nonwrapped_numel=2)
    True
    """

    def __init__(self, module_classes):
        self.classes = tuple(module_classes)

    def __call__(self, module, recurse, *args, **kwargs):
        return recurse or isinstance(module, self.classes)


class CustomPolicy:
    """The modules of which `lambda_fn(module)` is true, or a dict of arguments for their wrapper."""

    def __init__(self, lambda_fn):
        self.lambda_fn = lambda_fn

    def __call__(self, module, recurse, *args, **kwargs):
        return recurse or self.lambda_fn(module)


def _recursive_wrap(module, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, only_wrap_children=False, **kwargs):
    """Wrap what a policy chooses, from the inside out; returns the module as it is then, and how many parameters are wrapped."""
    numel = sum(parameter.numel() for parameter in module.parameters() if parameter not in ignored_params)
    if not auto_wrap_policy(module=module, recurse=True, nonwrapped_numel=numel):
        return module, 0
    done = 0
    for name, child in list(module.named_children()):
        if child in ignored_modules:
            continue
        if getattr(child, "_fsdp_unit", None) is not None:
            done += sum(parameter.numel() for parameter in child.parameters())
            continue
        wrapped, count = _recursive_wrap(child, auto_wrap_policy, wrapper_cls, ignored_modules, ignored_params, **kwargs)
        if wrapped is not child:
            setattr(module, name, wrapped)
        done += count
    if only_wrap_children or isinstance(module, (wisp.nn.ModuleList, wisp.nn.ModuleDict)):
        return module, done
    chosen = auto_wrap_policy(module=module, recurse=False, nonwrapped_numel=numel - done)
    if not chosen:
        return module, done
    return wrapper_cls(module, **{**kwargs, **(chosen if isinstance(chosen, dict) else {})}), numel


_wrapping = []


@contextlib.contextmanager
def enable_wrap(*, wrapper_cls, **wrapper_kwargs):
    """A block in which `wrap(module)` wraps."""
    _wrapping.append(functools.partial(wrapper_cls, **wrapper_kwargs))
    try:
        yield
    finally:
        _wrapping.pop()


def wrap(module, **overrides):
    """The module in the wrapper of the surrounding `enable_wrap`; outside of one, the module."""
    return _wrapping[-1](module, **overrides) if _wrapping else module


def _or_policy(module, recurse, nonwrapped_numel, policies):
    """Whether one of several policies wraps a module."""
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)
