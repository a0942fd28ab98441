"""Contexts that are decorators too."""

import functools
import inspect


class _DecoratorContextManager:
    """A context manager that can decorate functions and generators."""

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args, **kwargs):
                steps, sent = function(*args, **kwargs), None
                while True:
                    with self.clone():
                        try:
                            value = steps.send(sent)
                        except StopIteration as end:
                            return end.value
                    sent = yield value

            return generator

        @functools.wraps(function)
        def decorated(*args, **kwargs):
            with self.clone():
                return function(*args, **kwargs)

        return decorated

    def clone(self):
        """A fresh context of the same kind."""
        return self.__class__()

    def __enter__(self):
        raise NotImplementedError

    def __exit__(self, *details):
        raise NotImplementedError


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """The same for contexts without arguments: `@context` and `@context()`."""

    def __new__(cls, orig_func=None):
        return super().__new__(cls) if orig_func is None else cls()(orig_func)


def context_decorator(ctx, func):
    """A function that runs inside of a context."""

    @functools.wraps(func)
    def decorated(*args, **kwargs):
        with ctx() if callable(ctx) else ctx:
            return func(*args, **kwargs)

    return decorated
