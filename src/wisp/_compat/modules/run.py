"""Runs a PyTorch program unmodified: `wisp run script.py [arguments]`, or `python -m wisp.run script.py`.

`torch` and `torchvision` mean Wisp in it. Where the program ends in an error, the traceback begins with the
program's own lines, and what Wisp lacks is named with its place and what comes closest.
"""

import os
import runpy
import sys

USAGE = """usage: wisp run script.py [arguments]
       wisp run -m package.module [arguments]
       wisp run -c "import torch; ..."

Runs a PyTorch program with Wisp in place of torch and torchvision.
`wisp check script.py` says beforehand what it would lack."""


def _own_lines(trace):
    """The traceback without the frames that started the program."""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name != __file__ and "runpy" not in name:
            return trace
        trace = trace.tb_next
    return None


def _report(error):
    from wisp._compat import missing

    world = sys.modules.get("wisp.distributed._world")
    if world is not None:
        world.fail()  # the other ranks must not be waited for
    trace = _own_lines(error.__traceback__)
    if trace is None and not isinstance(error, SyntaxError):  # which says its place itself
        trace = error.__traceback__
    # as Python ends a program: a hook that the program put there is called, and Python's own says "Did you mean"
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    text = missing.explain(error)
    if text:
        print(f"\nwisp: {text}", file=sys.stderr)


def run(arguments):
    """Run a program as `python` would; the exit status is the program's."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        raise SystemExit(0 if arguments else 2)
    from wisp._compat import alias

    alias.install()
    try:
        if arguments[0] in ("-m", "-c") and len(arguments) < 2:
            raise SystemExit(f"wisp run: {arguments[0]} needs an argument")
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            sys.path.insert(0, "")
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
        else:
            _run_file(arguments)
    except Exception as error:
        _report(error)
        raise SystemExit(1) from None


def _run_file(arguments):
    path = arguments[0]
    if not os.path.exists(path):
        raise SystemExit(f"wisp run: there is no file {path!r} in {os.getcwd()}")
    sys.argv = list(arguments)
    if os.path.isdir(path):
        runpy.run_path(path, run_name="__main__")
        return
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    # the program is sys.modules["__main__"], as under python itself: pickles and worker processes find its classes there
    import io
    import types

    main = types.ModuleType("__main__")
    main.__file__, main.__builtins__ = path, __builtins__
    sys.modules["__main__"] = main
    with io.open_code(path) as source:
        code = compile(source.read(), path, "exec")
    exec(code, main.__dict__)


if __name__ == "__main__":
    try:
        run(sys.argv[1:])
    except KeyboardInterrupt:  # `wisp launch` says so once, for all ranks
        raise SystemExit(130) from None
