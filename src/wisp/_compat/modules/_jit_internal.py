"""Names of TorchScript's front end that libraries import; code runs as Python."""

from typing import Any, Final, List, Optional, Tuple  # noqa: F401, UP035

from wisp.futures import Future  # noqa: F401
from wisp.jit import _overload, _overload_method, export, ignore, is_scripting, unused  # noqa: F401

BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = list


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name=None, func_name=None):
    """A function that calls one of two, as an argument says."""

    def chosen(*args, **kwargs):
        flag = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if flag else if_false)(*args, **kwargs)

    chosen.__name__ = func_name or "boolean_dispatch"
    return chosen


def _copy_to_script_wrapper(fn):
    return fn


def is_ignored_fn(fn):
    """False: nothing is compiled."""
    return False


def _qualified_name(obj, mangle_name=True):
    """The name of a class or function with its module."""
    return f"{obj.__module__}.{obj.__qualname__}"
