"""What a table of names can hold (`stubs.py`, `inner.py`): functions that answer, refuse, or are found elsewhere."""

import contextlib
from importlib import import_module


class Answer:
    """A function that returns one value whatever it is called with, or what becomes of its arguments."""

    def __init__(self, text, value=None, parameters="", result="value"):
        self.text, self.value, self.parameters, self.result = text, value, parameters, result

    def make(self, name, module):
        # evaluated, so that the function has its parameters by name: signatures are compared, and a wrong call is an error
        function = eval(f"lambda {self.parameters}: {self.result}", {"value": self.value})
        function.__name__, function.__qualname__, function.__module__, function.__doc__ = name, name, module, self.text
        if self.result == "value" and isinstance(self.value, (bool, int, str, type(None))):
            function.__annotations__["return"] = "None" if self.value is None else type(self.value).__name__
        return function


class Refusal:
    """A function, or a class, that cannot be used: the text says why and what to do instead."""

    def __init__(self, text, is_class=False):
        self.text, self.is_class = text, is_class

    def make(self, name, module):
        def refuse(*args, **kwargs):
            raise NotImplementedError(f"{module[5:]}.{name}: {self.text}")

        refuse.__name__, refuse.__qualname__, refuse.__module__ = name, name, module
        refuse.__doc__ = "Not available: raises NotImplementedError."
        refuse.__annotations__["return"] = "NoReturn"
        annotated = classmethod(lambda cls, kind: cls)
        contents = {"__init__": refuse, "__module__": module, "__doc__": refuse.__doc__, "__class_getitem__": annotated}
        return type(name, (), contents) if self.is_class else refuse


class Unused:
    """A class that programs compare with or catch, and that Wisp makes no use of."""

    def __init__(self, text, base=object):
        self.text, self.base = text, base

    def make(self, name, module):
        return type(name, (self.base,), {"__doc__": self.text, "__module__": module})


class From:
    """What another module has, under the same name unless told otherwise."""

    def __init__(self, home, name=None):
        self.home, self.name = home, name

    def make(self, name, module):
        return getattr(import_module(self.home), self.name or name)


class Nothing(contextlib.nullcontext, contextlib.ContextDecorator):
    """A context, or a decorator, that changes nothing."""


def same(names, what):
    """The same for several names."""
    return dict.fromkeys(names.split(), what)
