"""state_dict and load_state_dict."""

import copy
import gc
import pickle
from collections import OrderedDict

import pytest

import wisp
from wisp import nn


def model():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def test_round_trip():
    a, b = model(), model()
    a(wisp.randn(4, 2))
    state = a.state_dict()
    assert list(state) == ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert state._metadata[""] == {"version": 1} and state._metadata["1"] == {"version": 2}
    assert not state["0.weight"].requires_grad and state["0.weight"].data_ptr() == a[0].weight.data_ptr()
    assert a.state_dict(keep_vars=True)["0.weight"] is a[0].weight
    result = b.load_state_dict(state)
    assert repr(result) == "<All keys matched successfully>" and result.missing_keys == []
    assert all((x == y).all() for x, y in zip(a.state_dict().values(), b.state_dict().values()))
    assert b.eval()(wisp.ones(1, 2)).tolist() == a.eval()(wisp.ones(1, 2)).tolist()


def test_prefix_and_destination():
    out = OrderedDict()
    assert model()[0].state_dict(destination=out, prefix="x.") is out
    assert list(out) == ["x.weight", "x.bias"]


def test_all_mismatches_are_listed_at_once():
    state = model().state_dict()
    state["0.weight"] = wisp.zeros(5, 2)
    state["1.bias"] = wisp.zeros(7)
    state["2.weight"] = wisp.zeros(1)
    state["0.extra"] = wisp.zeros(1)
    del state["0.bias"]
    with pytest.raises(RuntimeError) as info:
        model().load_state_dict(state)
    lines = str(info.value).split("\n\t")
    assert lines[0] == "Error(s) in loading state_dict for Sequential:"
    assert lines[1] == 'Missing key(s) in state_dict: "0.bias". '
    assert sorted(lines[2].split(": ")[1].strip(". ").split(", ")) == ['"0.extra"', '"2.weight"']
    assert lines[3].startswith("size mismatch for 0.weight: copying a param with shape ")
    assert "[5, 2]" in lines[3] and "[3, 2]" in lines[3]
    assert lines[4].startswith("size mismatch for 1.bias")


def test_not_strict():
    state = model().state_dict()
    del state["0.bias"]
    state["new"] = wisp.zeros(1)
    result = model().load_state_dict(state, strict=False)
    assert result.missing_keys == ["0.bias"] and result.unexpected_keys == ["new"]
    assert "0.bias" in repr(result)
    state["0.weight"] = wisp.zeros(1, 1)
    with pytest.raises(RuntimeError, match="size mismatch"):
        model().load_state_dict(state, strict=False)


def test_assign():
    m = model()
    state = {k: v.double() if v.is_floating_point() else v for k, v in m.state_dict().items()}
    m.load_state_dict(state, assign=True)
    assert m[0].weight.dtype == wisp.float64 and isinstance(m[0].weight, nn.Parameter) and m[0].weight.requires_grad
    assert m[1].running_mean is state["1.running_mean"]


def test_wrong_things():
    with pytest.raises(TypeError, match="dict-like"):
        model().load_state_dict([1])
    state = model().state_dict()
    state["0.weight"] = 3
    with pytest.raises(RuntimeError, match="expected torch.Tensor or Tensor-like"):
        model().load_state_dict(state)


def test_extra_state():
    class Counter(nn.Module):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    a, b = Counter(), Counter()
    a.count = 5
    state = nn.Sequential(a).state_dict()
    assert state == {"0._extra_state": {"count": 5}}
    nn.Sequential(b).load_state_dict(state)
    assert b.count == 5
    with pytest.raises(RuntimeError, match="Missing key"):
        nn.Sequential(b).load_state_dict({})
    with pytest.raises(RuntimeError, match="Unexpected key"):
        nn.Sequential(nn.ReLU()).load_state_dict(state)


def test_old_batch_norm_files():
    state = dict(model().state_dict())
    del state["1.num_batches_tracked"]
    assert model().load_state_dict(state).missing_keys == []


def test_copies_into_meta_parameters_are_warned_of():
    with wisp.device("meta"):
        layer = nn.Linear(2, 3)
    with pytest.warns(UserWarning, match="for weight: copying from a non-meta parameter"):
        layer.load_state_dict(nn.Linear(2, 3).state_dict())


def test_loading_leaves_no_cycles():
    layer = nn.Sequential(nn.Linear(2, 3))
    state = layer.state_dict()
    gc.collect()
    layer.load_state_dict(state)
    assert gc.collect() == 0


def test_swapping_asks_module_load():
    from wisp._compat.modules import __future__ as switches

    class Refuses(wisp.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is wisp.Tensor.module_load:
                return args[1]
            return super().__torch_function__(func, types, args, kwargs or {})

    layer = nn.Linear(2, 3, bias=False)
    weight = layer.weight
    switches.set_swap_module_params_on_conversion(True)
    try:
        layer.load_state_dict({"weight": wisp.ones(3, 2)})
        assert layer.weight is weight and bool((weight == 1).all()) and weight.requires_grad
        with pytest.raises(RuntimeError, match="module_load returned one of self or other"):
            layer.load_state_dict({"weight": wisp.ones(3, 2).as_subclass(Refuses)})
    finally:
        switches.set_swap_module_params_on_conversion(False)


class Loads(wisp.nn.Module):
    """Has a state of its own, which packs what is no module."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def __getstate__(self):
        return {name: ("packed", value) if name == "module" else value for name, value in self.__dict__.items()}

    def __setstate__(self, state):
        assert "module" not in state
        self.__dict__ = state


def test_states_of_a_programs_own_see_members_in_their_registries_only():
    model = Loads(wisp.nn.Linear(2, 3))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert wisp.equal(other.module.weight, model.module.weight) and other.module is not model.module
    assert "module" in vars(model) and model.module.weight.shape == (3, 2)
