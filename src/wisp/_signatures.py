"""Signatures as PyTorch documents them: those of the core's operators for `inspect`, and second names for functions of Python."""


def renamed(function, signature, **names):
    """A function that also takes its parameters by the names of `signature`: `names` maps them to those that it has."""

    def renamed(*args, **kwargs):
        return function(*args, **{names.get(name, name): value for name, value in kwargs.items()})

    renamed.__name__, renamed.__module__, renamed.__qualname__ = function.__name__, function.__module__, function.__qualname__
    renamed.__doc__ = f"{signature} -> Tensor\n\n{function.__doc__}"
    return renamed


def signature_of(operator):
    """What `inspect.signature` finds."""
    if operator.__module__ != "wisp.nn.functional":  # elsewhere PyTorch has built-in functions too
        raise AttributeError("__signature__")
    return documented(operator)


def documented(operator):
    """The first line of a function's documentation as an `inspect.Signature`."""
    import ast
    import inspect

    line = (operator.__doc__ or "").partition("\n")[0].partition(" -> ")[0].replace("*size, *,", "*size,")
    if "(" not in line:
        raise AttributeError("__signature__")
    try:
        parsed = ast.parse(f"def f{line[line.index('(') :]}: pass").body[0].args
        defaults = [ast.literal_eval(value) for value in parsed.defaults]
        named = [inspect.Parameter.empty if value is None else ast.literal_eval(value) for value in parsed.kw_defaults]
    except (SyntaxError, ValueError):
        raise AttributeError("__signature__") from None
    kinds = inspect.Parameter
    places = parsed.posonlyargs + parsed.args
    defaults = [kinds.empty] * (len(places) - len(defaults)) + defaults
    parameters = [kinds(a.arg, kinds.POSITIONAL_OR_KEYWORD, default=d) for a, d in zip(places, defaults)]
    if parsed.vararg:
        parameters.append(kinds(parsed.vararg.arg, kinds.VAR_POSITIONAL))
    parameters += [kinds(a.arg, kinds.KEYWORD_ONLY, default=d) for a, d in zip(parsed.kwonlyargs, named)]
    return inspect.Signature(parameters)
