"""What operators say of themselves when they are registered (csrc/ops/facts.h) is true, and is what others act on."""

import pytest

import wisp
from wisp import _core
from wisp.nn import functional as F

ROWS = {row[0]: row for row in _core._pointwise_table()}


def operators(fact):
    """Short name -> the operator, of those that are functions of one tensor without further demands."""
    found = {}
    for path in _core._operators_with(fact):
        space, _, name = path.rpartition(".")
        operator = _core._operators[space].get(name)
        if operator is not None and not name.endswith("_"):
            found[path] = operator
    return found


def of_one(operator):
    """An operator that can be called with a tensor alone, and does not draw."""
    return operator._operands == 1 and "draws" not in operator._facts


def test_a_fact_that_there_is_not():
    with pytest.raises(ValueError, match="no such fact"):
        _core._operators_with("nonsense")


def test_rows_are_elementwise():
    for name in ROWS:
        operator = getattr(wisp, name, None) or getattr(wisp.special, name, None) or getattr(F, name, None)
        if hasattr(operator, "_facts"):
            assert "elementwise" in operator._facts, name


@pytest.mark.parametrize("path, operator", operators("keeps_zero").items())
def test_zero_stays_zero(path, operator):
    if "draws" not in operator._facts:
        assert (operator(wisp.zeros(3)) == 0).all(), path


@pytest.mark.parametrize("path, operator", operators("is_linear").items())
def test_linear_ones_are(path, operator):
    a, b = wisp.randn(2, 7, dtype=wisp.float64)
    wisp.testing.assert_close(operator(a + b), operator(a) + operator(b))


@pytest.mark.parametrize("path", operators("in_foreach"))
def test_foreach(path):
    tensors = [wisp.rand(2) + 0.2, wisp.rand(3) + 0.2]
    for result, tensor in zip(getattr(wisp, f"_foreach_{path}")(tensors), tensors):
        assert wisp.equal(result, getattr(wisp, path)(tensor)) or result.isnan().any()


def test_views_are_views():
    calls = {
        "transpose": (0, 1),
        "swapaxes": (0, 1),
        "swapdims": (0, 1),
        "permute": ((1, 0),),
        "movedim": (0, 1),
        "moveaxis": (0, 1),
        "select": (0, 1),
        "narrow": (0, 1, 1),
        "unflatten": (0, (2, 1)),
        "diagonal": (),
        "unbind": (),
        "chunk": (2,),
        "split": (1,),
        "split_with_sizes": ([1, 1],),
        "tensor_split": (2,),
        "as_strided": ((2,), (1,)),
        "unsqueeze": (0,),
        "broadcast_to": ((2, 2, 3),),
        "expand": (2, 2, 3),
        "unfold": (0, 1, 1),
        "view_as": (wisp.zeros(3, 2),),
        "reshape": ((3, 2),),
        "reshape_as": (wisp.zeros(3, 2),),
        "expand_as": (wisp.zeros(2, 2, 3),),
    }
    for path in _core._operators_with("makes_view"):
        if path.startswith("_"):
            continue
        x = wisp.arange(6.0).reshape(2, 3)
        result = getattr(x, path)(*calls.get(path, ()))
        for part in result if isinstance(result, tuple) else (result,):
            assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr(), path


@pytest.mark.parametrize("fact, at_least", [("elementwise", 60), ("takes_batches", 5), ("reduces", 10)])
def test_vmap_works_on_the_batch_at_once(fact, at_least, monkeypatch):
    """An operator of one tensor gives under vmap what it gives for one sample after another, without doing so."""
    if fact != "reduces":  # some have no dim for a batch
        monkeypatch.setattr(wisp.func._batching, "one_by_one", lambda call: pytest.fail(f"one by one: {call.name}"))
    checked = 0
    for path, operator in operators(fact).items():
        if not of_one(operator) or path.startswith("_") or path == "empty_like":
            continue
        x = wisp.rand(3, 2, 2, dtype=wisp.float64) * 0.5 + 0.2
        try:
            wanted = [operator(sample) for sample in x]
        except (TypeError, RuntimeError):  # needs further arguments, or another dtype
            continue
        result = wisp.vmap(operator)(x)
        parts = zip(result, zip(*wanted)) if isinstance(result, tuple) else [(result, wanted)]
        for part, samples in parts:
            wisp.testing.assert_close(part, wisp.stack(list(samples)), equal_nan=True, msg=path)
        checked += 1
    assert checked > at_least


def test_autocast_follows_the_facts():
    a = wisp.rand(4, 4)
    with wisp.autocast("cpu", dtype=wisp.bfloat16):
        assert (a @ a).dtype == wisp.mm(a, a).dtype == F.linear(a, a).dtype == wisp.bfloat16
        low = a.bfloat16()
        assert wisp.linalg.det(low).dtype == wisp.prod(low).dtype == F.mse_loss(low, low).dtype == wisp.float32
        assert wisp.cat([a, low]).dtype == wisp.float32 and wisp.cat([low, low]).dtype == wisp.bfloat16
        assert wisp.exp(low).dtype == wisp.bfloat16  # float32 on the GPU alone


def test_further_names():
    assert wisp.multiply is wisp.mul and wisp.Tensor.multiply_ is wisp.Tensor.mul_ and wisp.true_divide is wisp.divide
    assert wisp.arcsin_ is wisp.asin_ and wisp.concat is wisp.concatenate and wisp.Tensor.greater_equal is wisp.Tensor.ge


def test_second_names_of_parameters():
    a, b = wisp.tensor([7, 8]), wisp.tensor([2, 3])
    assert a.fmod(divisor=b).tolist() == wisp.fmod(a, other=b).tolist() == [1, 2]
    assert wisp.heaviside(a, values=b).tolist() == [1, 1] and wisp.special.legendre_polynomial_p(a / 10, n=b).shape == (2,)
    assert a.mul(value=b).tolist() == [14, 24] and wisp.broadcast_to(a, shape=(1, 2)).shape == (1, 2)
    with pytest.raises(TypeError, match="divisor"):
        wisp.add(a, divisor=b)
    assert wisp.Tensor.fmod.__doc__.startswith("fmod(divisor) -> Tensor") and wisp.fmod.__doc__.startswith(
        "fmod(input, other, *, out=None)"
    )
