"""Calls the operators of the generated tests on the stand-in GPU, forward and backward, and prints what became of each.
Values mean nothing there: what shows is the host's side, and which kernels it asks for. Run by test_host.py."""

import json
import os
import sys

tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [tests, os.path.join(tests, "fast")]

import wisp  # noqa: E402

wisp.set_default_device("cuda")

import test_generated as table  # noqa: E402
import test_generated_operators as operators  # noqa: E402


def leaves(y):
    return [t for t in (y if isinstance(y, (tuple, list)) else [y]) if isinstance(t, wisp.Tensor)]


def walk(f, inputs):
    """Forward and backward; "fine", or what was raised."""
    try:
        given = [x.requires_grad_() if x.is_floating_point() or x.is_complex() else x for x in inputs]
        made = [y for y in leaves(f(*given)) if y.requires_grad]
        for y in made[:1]:
            y.sum().abs().backward()
        wisp.cuda.synchronize()
        return "fine"
    except Exception as error:  # what it is is the result
        return f"{type(error).__name__}: {error}"


def main():
    results = {}
    for case in operators.CASES.values() if isinstance(operators.CASES, dict) else operators.CASES:
        dtype = wisp.float64 if "weight" in case.name or case.name == "solve" else wisp.float32  # as their constants
        results[case.name] = walk(case.f, [wisp.tensor(a).to(dtype) for a in case.arrays()])
    for turn, name in enumerate(table.TABLE):
        made = [wisp.tensor(x.tolist()) for x in table.samples(name)]
        results[f"{name} float32"] = walk(table.caller(name), made)
        if turn % 5:  # the kernels for other layouts and dtypes differ by template arguments alone
            continue
        made = [x.detach().to(wisp.bfloat16).t() for x in made]
        results[f"{name} bfloat16 transposed"] = walk(table.caller(name), made)
    print(json.dumps(results))


main()
