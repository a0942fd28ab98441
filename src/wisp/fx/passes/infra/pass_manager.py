"""Runs passes one after another, in an order that their constraints allow, until nothing changes."""

import inspect
from graphlib import CycleError, TopologicalSorter

from wisp.fx.graph_module import GraphModule
from wisp.fx.passes.infra.pass_base import PassResult

__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]


def pass_result_wrapper(fn):
    """A pass whose result is a PassResult, of a function that changes its module in place.

    >>> pass_result_wrapper(lambda module: None)(wisp.fx.symbolic_trace(wisp.nn.ReLU())).modified
    True
    """

    def passed(module):
        result = fn(module)
        return result if isinstance(result, PassResult) else PassResult(module, True)

    passed.__name__ = getattr(fn, "__name__", type(fn).__name__)
    return passed


def this_before_that_pass_constraint(this, that):
    """A constraint: of two passes, `this` never stands after `that`.

    >>> this_before_that_pass_constraint("a", "b")("b", "a")
    False
    """
    return lambda first, second: not (first == that and second == this)


def _topological_sort_passes(passes, constraints):
    """The passes in an order that the constraints allow: the first that may go next, level by level."""
    before = {
        i: [j for j in range(len(passes)) if i != j and not all(allows(passes[i], passes[j]) for allows in constraints)]
        for i in range(len(passes))
    }
    try:
        return [passes[i] for i in TopologicalSorter(before).static_order()] if constraints else list(passes)
    except CycleError as error:
        inside = [passes[i] for i in sorted(set(error.args[1]))]
        raise RuntimeError(f"Circular dependency detected within the following passes: {inside}") from None


class PassManager:
    """Calls `passes` in order, `steps` times or until a round changes nothing; `constraints` say which may stand before which.

    >>> manager = PassManager(passes=[pass_result_wrapper(lambda module: module.recompile())])
    >>> manager(wisp.fx.symbolic_trace(wisp.nn.ReLU())).modified
    True
    """

    def __init__(self, passes=None, constraints=None, steps=None, run_checks_after_each_pass=False, suppress_check_failures=False):
        self.passes, self.constraints = list(passes or ()), list(constraints or ())
        self.steps = 1 if steps is None else steps
        self.run_checks_after_each_pass, self.suppress_check_failures = run_checks_after_each_pass, suppress_check_failures
        self._validated = False

    def add_pass(self, _pass):
        """Puts a pass after the others."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint):
        """Adds a function of two passes that says whether the first may stand before the second."""
        self.constraints.append(constraint)
        self._validated = False

    def add_checks(self, check):
        """A function of a GraphModule that raises where it is not as it should be."""
        if len(inspect.signature(check).parameters) != 1:
            raise TypeError(f"PassManager.add_checks: {check} must take one argument, a GraphModule")
        self.check = check

    def check(self, module):
        """Called after each pass (`run_checks_after_each_pass`) and at the end."""

    def solve_constraints(self):
        """Orders the passes as the constraints want them."""
        self.passes = _topological_sort_passes(self.passes, self.constraints)
        self._validated = True

    def validate_constraints(self):
        """Raises where a pass stands before one that must come first."""
        for i, first in enumerate(self.passes):
            for second in self.passes[i + 1 :]:
                if not all(allows(first, second) for allows in self.constraints):
                    raise RuntimeError(f"pass schedule constraint violated: {first} may not stand before {second}; call solve_constraints")
        self._validated = True

    def __call__(self, module):
        if not self._validated:
            self.solve_constraints()
        changed = False
        self.check(module)
        for _ in range(self.steps):
            changed_now = False
            for number, one in enumerate(self.passes):
                try:
                    result = one(module)
                    if not isinstance(result, PassResult):
                        raise TypeError(f"pass {one} returned {type(result).__name__}, not a PassResult: see pass_result_wrapper")
                except Exception as error:
                    done = [getattr(p, "__name__", type(p).__name__) for p in self.passes[:number]]
                    name = getattr(one, "__name__", type(one).__name__)
                    raise Exception(f"An error occurred when running the {name!r} pass after the following passes: {done}") from error
                module, changed_now = result.graph_module, changed_now or result.modified
                if isinstance(module, GraphModule):
                    module.recompile()
                if self.run_checks_after_each_pass:
                    self.check(module)
            changed = changed or changed_now
            if not changed_now:
                break
        if not self.run_checks_after_each_pass:
            self.check(module)
        return PassResult(module, changed)
