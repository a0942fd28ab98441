"""Calls every registered operator with junk. Run as a program by tests/fast/core/test_errors.py: it must end by itself.

Prints the name of each operator before it calls it, so that the last line names the one that crashed.
Arguments: seed, rounds, and optionally the operator to start from.
"""

import itertools
import random
import signal
import sys
import warnings

import wisp

warnings.simplefilter("ignore")
wisp.set_num_threads(1)

# Those that change settings for the whole process, or wait for something.
SKIPPED = {
    "_set_package_directory",
    "set_num_threads",
    "set_num_interop_threads",
    "_sanitizer_canary",
    "set_default_dtype",
    "_set_detect_anomaly",
    "_enter_dual_level",
    "_hide_tangents",
    "_batching",
    "_set_batching",
    "_transforms",
    "_set_overrides",
    "_overriding",
    "_function_modes",
    "_functions_off",
    "_set_lazy_types",
    "_autocast_nest",
    "_wrapper_classes",
}


def junk():
    return [
        None,
        True,
        0,
        -1,
        3,
        2**62,
        -(2**63),
        2**70,
        1.5,
        float("nan"),
        float("inf"),
        1j,
        "text",
        "",
        b"bytes",
        (),
        [],
        [0],
        (2, 3),
        [-1, 2],
        [2**40, 2**40],
        ["a"],
        [None],
        {},
        object(),
        type,
        wisp.float32,
        wisp.int64,
        wisp.bool,
        wisp.complex64,
        wisp.strided,
        len,
        wisp.tensor(1.0),
        wisp.tensor(5),
        wisp.ones(0),
        wisp.ones(3),
        wisp.ones(2, 3),
        wisp.ones(2, 3).t(),
        wisp.ones(3).expand(4, 3),
        wisp.ones(1, 2, 5, 5),
        wisp.ones(2, 3, dtype=wisp.int64),
        wisp.tensor([10**9, -(10**9)]),
        wisp.tensor([True, False]),
        wisp.ones(2, 3, dtype=wisp.complex64),
        wisp.ones(2, 2, requires_grad=True),
        wisp.full((3,), float("nan")),
        wisp.zeros(2, 0, 3),
        wisp.ones(2, 3, dtype=wisp.float16),
        wisp.ones(2, 2, dtype=wisp.uint8),
        wisp.ones(2, 3, dtype=wisp.complex32),
        wisp.ones(2, 3, dtype=wisp.float8_e5m2),
        wisp.nn.Parameter(wisp.ones(2)),
        [wisp.ones(2), wisp.ones(3)],
        [wisp.ones(2, 2), wisp.ones(2, 2)],
        [wisp.tensor([0, 1]), None],
        wisp.ones(1, 1, 2, 2, 2),
    ]


def attempt(f, args, kwargs):
    try:
        f(*args, **kwargs)
    except (Exception, SystemError) as error:
        if isinstance(error, (SystemError, KeyboardInterrupt)):
            print("SystemError:", getattr(f, "__name__", f), error, flush=True)
            sys.exit(3)


def slots(f):
    """How many arguments the signatures take, and their names."""
    most, names = 0, []
    for signature in getattr(f, "_signatures", ["(input, other)"]):
        inside = signature[signature.index("(") + 1 : signature.rindex(")") if "->" not in signature else signature.index(")")]
        parts = [p.strip() for p in inside.split(",") if p.strip() and p.strip() != "*"]
        most = max(most, len(parts))
        names += [p.split("=")[0].split()[-1] for p in parts]
    return most, sorted(set(names))


def operators():
    for space, found in sorted(wisp._core._operators.items()):
        for name, f in sorted(found.items()):
            if name not in SKIPPED:
                yield f"{space}.{name}" if space else name, f
    for name in sorted(dir(wisp.Tensor)):
        f = getattr(wisp.Tensor, name, None)
        if callable(f) and not name.startswith("__") and name not in ("_make_subclass",):
            yield "Tensor." + name, f


def main(seed, rounds, start=""):
    r = random.Random(seed)
    for name, f in itertools.dropwhile(lambda found: start and found[0] != start, operators()):
        print(name, flush=True)
        signal.alarm(60)
        values = junk()
        most, names = slots(f)
        most = min(most, 6)
        attempt(f, (), {})
        for value in values:  # the same junk everywhere, then one kind in each place of an otherwise sensible call
            for count in range(1, most + 1):
                attempt(f, (value,) * count, {})
        good = [wisp.ones(2, 3), wisp.ones(2, 2, 4, 4), wisp.tensor([0, 1]), 0, 1, (1, 1)]
        for place, value in itertools.product(range(most), values):
            args = [r.choice(good) for _ in range(most)]
            args[place] = value
            attempt(f, args, {})
        for _ in range(rounds):
            count = r.randrange(most + 1)
            args = [r.choice(values) for _ in range(count)]
            kwargs = {r.choice(names): r.choice(values)} if names and r.random() < 0.4 else {}
            attempt(f, args, kwargs)
    signal.alarm(0)
    print("survived", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
