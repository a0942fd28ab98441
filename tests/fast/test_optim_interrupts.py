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


def setup(name):
    parameters = [wisp.nn.Parameter(wisp.tensor([[0.5, -1.0], [2.0, 1.5]])) for _ in range(2)]
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
