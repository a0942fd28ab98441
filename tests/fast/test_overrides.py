"""__torch_function__: subclasses of Tensor, objects that are no tensors, and modes."""

import copy
import inspect
import subprocess
import sys

import pytest

import wisp
from wisp.overrides import TorchFunctionMode, handle_torch_function, has_torch_function


class Plain(wisp.Tensor):
    pass


class Counting(wisp.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


def test_results_keep_the_subclass():
    x = Plain([1.0, 2.0])
    for result in (
        x + 1,
        1 + x,
        wisp.ones(2) * x,
        x.sum(),
        wisp.cat([x, x]),
        x[0],
        wisp.relu(x),
        x.max(0).values,
        x == x,
        wisp.nn.functional.linear(x, wisp.ones(3, 2)),
        copy.deepcopy(x),
        next(iter(x)),
    ):
        assert type(result) is Plain
    assert type(x * wisp.nn.Parameter(wisp.ones(2))) is Plain
    assert hash(x) == hash(x) and repr(x) == "Plain([1., 2.])"


def test_gradients_flow_through_a_subclass():
    leaf = wisp.ones(3, requires_grad=True)
    (leaf.as_subclass(Plain) * 2).sum().backward()
    assert leaf.grad.tolist() == [2.0, 2.0, 2.0]


def test_parameters_and_plain_tensors_are_not_touched():
    assert type(wisp.nn.Parameter(wisp.ones(2)) * 2) is wisp.Tensor
    assert type(wisp.ones(2) + 1) is wisp.Tensor


def test_no_class_of_the_package_makes_calls_look_for_overrides():
    code = """
import wisp.nn.functional, wisp.optim, wisp.utils.data, wisp.vision.models, wisp.vision.transforms
model = wisp.nn.Sequential(wisp.nn.LazyLinear(3), wisp.nn.LazyBatchNorm1d())
assert type(model(wisp.ones(2, 4))) is wisp.Tensor and type(wisp.nn.UninitializedBuffer().half()) is wisp.Tensor
print(wisp._core._operators[""]["_overriding"](0))
class Own(wisp.Tensor): pass
print(wisp._core._operators[""]["_overriding"](0))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == ["0", "1"]


def test_functions_methods_operators_and_attributes_are_seen():
    x = Counting([1.0, 2.0])
    Counting.calls.clear()
    wisp.exp(x), x.sum(), x + 1, x[0], x.shape
    assert Counting.calls == ["exp", "sum", "add", "__getitem__", "__get__"]


def test_objects_that_are_no_tensors_answer():
    class Other:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented if func is wisp.mean else func.__name__

    assert wisp.add(Other(), 1) == "add" and wisp.cat([wisp.ones(1), Other()]) == "cat"
    with pytest.raises(TypeError, match="no implementation found"):
        wisp.mean(Other())
    with pytest.raises(TypeError):
        wisp.add(object(), 1)


def test_modes_see_every_operator_and_may_nest():
    class Doubling(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is wisp.ones else result

    with Doubling():
        assert wisp.ones(1).item() == 2
        with Doubling():
            assert wisp.ones(1).item() == 4
    assert wisp.ones(1).item() == 1


def test_python_functions_can_take_part():
    def double(x):
        return handle_torch_function(double, (x,), x) if has_torch_function((x,)) else x * 2

    class Other:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "answered"

    assert double(Other()) == "answered" and double(2) == 4


def test_dispatch_modes_see_a_programs_operators_and_do_not_ask_for_ever():
    from wisp.utils._python_dispatch import TorchDispatchMode

    @wisp.library.custom_op("wisp_tests::halved", mutates_args=())
    def halved(x: wisp.Tensor) -> wisp.Tensor:
        return x / 2

    class Seen(TorchDispatchMode):
        names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    x = wisp.ones(3)
    with Seen():
        assert x[None].shape == (1, 3) and wisp.einsum("i,i->", x, x) == 3
        halved(x)
    assert "wisp_tests.halved.default" in Seen.names


def test_every_overridable_function_has_an_answer_of_its_parameters():
    answers = wisp.overrides.get_testing_overrides()
    functions = [f for found in wisp.overrides.get_overridable_functions().values() for f in found]
    assert set(functions) == set(answers) and not set(functions) & wisp.overrides.get_ignored_functions()
    assert wisp.zeros in wisp.overrides.get_ignored_functions() and wisp.add in functions
    assert list(inspect.signature(answers[wisp.Tensor.sum]).parameters) == ["self", "dim", "keepdim", "dtype"]


def test_as_subclass_asks_nobody_where_a_program_has_put_it_into_the_package():
    code = """
import wisp
original = wisp.as_subclass = wisp.Tensor.as_subclass
wisp.Tensor.as_subclass = lambda self, cls: original(self, cls)

class Mine(wisp.Tensor):
    def clone(self):
        return self.as_subclass(wisp.Tensor).clone().as_subclass(Mine)

x = wisp.ones(2).as_subclass(Mine)
assert type(x.as_subclass(wisp.Tensor)) is wisp.Tensor and type(x.clone()) is Mine and type(x + 1) is Mine
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_an_object_that_answers_calls_is_no_number_even_if_it_can_become_one():
    class Answers:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return [func.__name__, *(type(arg).__name__ for arg in args)]

        def __float__(self):
            return 1.0

    x, other = wisp.ones(3), Answers()
    for name, answer in (("add", x + other), ("sub", x - other), ("pow", x**other), ("matmul", x @ other), ("lt", x < other)):
        assert answer == [name, "Tensor", "Answers"]
    assert (other * x) == ["mul", "Answers", "Tensor"] and (x == other)[0] == "eq"
    x_ = x
    x_ -= other
    assert x_ == ["sub_", "Tensor", "Answers"]
    for function in (wisp.add, wisp.pow, wisp.full_like, wisp.clamp):
        assert function(x, other)[0] == function.__name__
    assert float(other) == 1.0 and (x == object()) is False
