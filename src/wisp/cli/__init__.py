"""The command `wisp`: demo, doctor, run, launch, check."""

import os
import platform
import runpy
import sys


def _example(name):
    """The path of an example: within an installed package, or beside a source tree."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder in (os.path.join(package, "examples"), os.path.join(package, "..", "..", "examples")):
        path = os.path.join(folder, name + ".py")
        if os.path.exists(path):
            return path
    raise SystemExit(f"wisp demo: the example {name}.py was not found beside the package in {package}")


def demo(arguments):
    """Train a network on handwritten digits, in a few seconds."""
    from wisp.cli._options import Options

    runpy.run_path(_example("digits"))["main"](arguments, Options(prog="wisp demo", description=demo.__doc__))


def doctor(arguments):
    """Say what is installed, and what is missing; with --warm, compile kernels for the GPU ahead of need."""
    from wisp.cli._options import Options, architecture

    parser = Options(prog="wisp doctor", description=doctor.__doc__)
    parser.add_argument(
        "--warm",
        nargs="*",
        type=architecture,
        metavar="sm_90",
        help="compile the common kernels: for the GPUs that are there, or for these",
    )
    options = parser.parse_args(arguments)
    import numpy

    import wisp
    from wisp.cli import _doctor

    if options.warm is not None:
        _doctor.warm(options.warm)
        return
    facts = [
        ("wisp", f"{wisp.__version__} in {os.path.dirname(wisp.__file__)}"),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("numpy", numpy.__version__),
        ("system", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        ("threads", f"{wisp.get_num_threads()} of {os.cpu_count()} processors"),
    ]
    capability = getattr(getattr(wisp.backends, "cpu", None), "get_cpu_capability", None)
    if capability is not None:
        facts.append(("instructions", capability()))
    facts += _doctor.cuda_facts()
    for name, value in facts:
        print(f"{name:>12}  {value}")
    x = wisp.ones(3, requires_grad=True)
    (x * x).sum().backward()
    print(f"{'self-test':>12}  {'passed' if x.grad.tolist() == [2.0, 2.0, 2.0] else 'FAILED'}")


def run(arguments):
    """Run a PyTorch program with Wisp in place of torch: wisp run script.py [arguments]."""
    from wisp.run import run

    run(arguments)


def launch(arguments):
    """Run a program as several processes that work together: wisp launch -n 4 train.py [arguments]."""
    from wisp.distributed.run import main

    main(arguments)


def check(arguments):
    """List what a PyTorch project uses and Wisp lacks, without running it: wisp check path/."""
    from wisp.check import main

    main(arguments)


COMMANDS = {"demo": demo, "doctor": doctor, "run": run, "launch": launch, "check": check}


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            return _run_command(arguments)
        finally:  # of a command that exits by itself, too
            sys.stdout.flush()
    except BrokenPipeError:  # `wisp check . | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _run_command(arguments):
    if arguments and arguments[0] in COMMANDS:
        try:
            return COMMANDS[arguments[0]](arguments[1:])
        except KeyboardInterrupt:
            print(f"\nwisp {arguments[0]}: interrupted", file=sys.stderr)
            raise SystemExit(130) from None
    if arguments and arguments[0] in ("-V", "--version", "version"):
        import wisp

        print(f"wisp {wisp.__version__}")
        return None
    if arguments and arguments[0] not in ("-h", "--help", "help"):
        import difflib

        near = difflib.get_close_matches(arguments[0], COMMANDS, 1)
        what = "option" if arguments[0].startswith("-") else "command"
        print(
            f"wisp: there is no {what} {arguments[0]!r}; "
            + (f"did you mean `wisp {near[0]}`?" if near else "`wisp --help` lists what there is"),
            file=sys.stderr,
        )
        raise SystemExit(2)
    print("usage: wisp COMMAND [arguments]\n")
    for name, function in COMMANDS.items():
        print(f"  {name:8} {function.__doc__}")
    return None


if __name__ == "__main__":
    main()
