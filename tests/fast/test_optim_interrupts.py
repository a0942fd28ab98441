"""Ctrl-C at any line of a first step: the state of a parameter is there as a whole or not at all, and the next step works."""

import os
import sys

import pytest

import wisp

HOME = os.path.dirname(wisp.optim.__file__)
OPTIMIZERS = {
    name: getattr(wisp.optim, name)
    for name in "Adadelta Adafactor Adagrad Adam AdamW Adamax ASGD LBFGS NAdam RAdam RMSprop Rprop SGD Muon".split()
    if hasattr(wisp.optim, name)
}
SETTINGS = {"SGD": {"momentum": 0.9}, "RMSprop": {"momentum": 0.9, "centered": True}, "Adam": {"amsgrad": True}, "LBFGS": {"max_iter": 3}}


def setup(name, count=2):
    parameters = [wisp.nn.Parameter(wisp.tensor([[0.5, -1.0], [2.0, 1.5]])) for _ in range(count)]
    optimizer = OPTIMIZERS[name](parameters, lr=0.01, **SETTINGS.get(name, {}))

    def closure():
        optimizer.zero_grad()
        loss = sum((p**2).sum() for p in parameters)
        loss.backward()
        return loss

    return parameters, optimizer, closure


def interrupted(step, line):
    """Run `step` with a KeyboardInterrupt at the line-th line of wisp.optim; whether it came to that."""
    left = line

    def trace(frame, event, _):
        nonlocal left
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
        wisp.set_grad_enabled(True)  # `with no_grad()` may have been interrupted on its way out
    return False


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_next_step_works(name):
    line = 0
    while True:
        parameters, optimizer, closure = setup(name)
        came = interrupted(lambda: optimizer.step(closure), line)
        loss = optimizer.step(closure)
        optimizer.step(closure)
        assert loss.isfinite() and all(p.isfinite().all() for p in parameters), line
        kinds = {frozenset(state) for state in optimizer.state.values() if state}
        assert len(kinds) == 1, (line, kinds)
        other = setup(name)[1]
        other.load_state_dict(optimizer.state_dict())
        if not came:
            break
        line += 1
    assert line > 5


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RMSprop", "SGD"])
def test_a_group_that_is_stepped_in_parts(name):
    """More than 1,024 parameters: some may have made the step and others not, but each has all of its state or none, and counts its own."""
    parameters, optimizer, closure = setup(name, 1030)
    lines = 0

    def count(frame, event, _):
        nonlocal lines
        lines += event == "line"
        return count if frame.f_code.co_filename.startswith(HOME) else None

    sys.settrace(count)
    try:
        optimizer.step(closure)
    finally:
        sys.settrace(None)
    wanted = {frozenset(state) for state in optimizer.state.values()}
    for line in range(0, lines, lines // 12):
        parameters, optimizer, closure = setup(name, 1030)
        assert interrupted(lambda: optimizer.step(closure), line)
        assert {frozenset(state) for state in optimizer.state.values() if state} <= wanted
        optimizer.step(closure)
        assert {frozenset(state) for state in optimizer.state.values()} == wanted
        first, last = parameters[0], parameters[-1]
        steps = [optimizer.state[p].get("step", wisp.tensor(1.0)).item() for p in (first, last)]
        assert steps[0] in (1, 2) and steps[1] in (1, 2)
        assert all(p.isfinite().all() for p in parameters)
