"""Calls every registered operator with sizes that no memory holds: 2**31, 2**61, 2**63 - 1, and negative ones, in each place that takes a number
or a list of numbers, the others being sensible. Run as a program by tests/sanitized: it must end by itself, and no arithmetic may overflow.

Prints each call before it is made, so that the last line names the one that crashed. Argument: optionally the operator to start from."""

import itertools
import re
import resource
import signal
import sys
import warnings

import hostile

import wisp

warnings.simplefilter("ignore")
HUGE = [2**31, 2**61, 2**63 - 1, -1, -(2**31), -(2**61), -(2**63)]
SENSIBLE = {"bool": "True", "float": "0.5", "Number": "2", "str": "'constant'", "dtype": "wisp.float32", "device": "'cpu'"}
TENSORS = ["ones(2, 3)", "ones(1, 2, 6, 6)", "ones(4)", "tensor([0, 1])", "ones(1, 2, 4, 4, 4)", "ones(0, 3)"]


def parameters(signature):
    """-> [(type, name, is keyword)]"""
    inside, keyword, found = signature[signature.index("(") + 1 : signature.rindex(")")], False, []
    for part in re.split(r",(?![^\[]*\])", inside):
        part = part.strip()
        if part == "*":
            keyword = True
        elif part:
            words = part.split("=")[0].split()
            if len(words) == 2 and words[1] not in ("out", "generator"):
                found.append((words[0].rstrip("?!"), words[1].strip("."), keyword, "=" in part))
    return found


def value(kind, tensor):
    if kind.startswith(("Tensor[]", "Tensors")):
        return f"[wisp.{tensor}, wisp.{tensor}]"
    if kind.startswith(("Tensor", "Operand")):
        return f"wisp.{tensor}"
    if kind.startswith("int["):
        return "[1, 1]" if "(2" in tensor or "6, 6" in tensor else "[1]"
    return SENSIBLE.get(kind, "1" if kind == "int" else "None")


def calls(name, f):
    """The texts of calls of an operator: one huge number in one place, or in all places of a list."""
    seen = set()
    for signature in getattr(f, "_signatures", ()):
        known = parameters(signature)
        places = [i for i, (kind, *_) in enumerate(known) if kind == "int" or kind.startswith("int[") or kind == "Number"]
        for place, tensor, huge in itertools.product(places, TENSORS, HUGE):
            kind, parameter, *_ = known[place]
            if kind == "Number" and tensor.startswith("tensor("):
                continue  # no size, and integers of tensors wrap
            lists = [f"[{huge}]", f"[{huge}, 1]", f"[1, {huge}]", f"[{huge}, {huge}]"] if kind.startswith("int[") else [str(huge)]
            for text in lists:
                given = []
                for i, (other, title, keyword, optional) in enumerate(known):
                    if i == place:
                        given.append(f"{parameter}={text}" if keyword or i > 2 else text)
                    elif not optional or i < place <= 2:
                        given.append(f"{title}={value(other, tensor)}" if keyword or i > 2 else value(other, tensor))
                call = f"{name}({', '.join(given)})"
                if call not in seen:
                    seen.add(call)
                    yield call


def attempt(call, f):
    arguments = eval(f"(lambda *a, **k: (a, k)){call[call.index('(') :]}", {"wisp": wisp})
    try:
        f(*arguments[0], **arguments[1])
    except SystemError as error:
        print("SystemError:", error, flush=True)
        sys.exit(3)
    except (Exception, MemoryError):
        pass


def main(start=""):
    if len(sys.argv) < 3:  # the sanitizer has its own bound
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    count = 0
    for name, f in itertools.dropwhile(lambda found: start and found[0] != start, hostile.operators()):
        for call in calls(name, f):
            print(call, flush=True)
            signal.alarm(120)
            attempt(call, f)
            count += 1
    signal.alarm(0)
    print(f"survived {count} calls", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
