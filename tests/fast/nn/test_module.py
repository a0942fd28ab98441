"""nn.Module: registries, attributes, traversal, conversion, copies, errors."""

import copy
import gc
import importlib
import pickle
import weakref
from collections import OrderedDict

import pytest

import wisp
from wisp import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.scale = nn.Parameter(wisp.ones(1))
        self.register_buffer("steps", wisp.zeros(1))
        self.register_buffer("cache", wisp.zeros(1), persistent=False)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x * self.scale


def names(pairs):
    return [name for name, _ in pairs]


def test_members_are_plain_attributes_and_registered():
    net = Net()
    assert net.__dict__["scale"] is net._parameters["scale"]
    assert net.__dict__["first"] is net._modules["first"]
    assert net.__dict__["steps"] is net._buffers["steps"]
    assert names(net.named_parameters()) == [
        "scale",
        "first.weight",
        "first.bias",
        "blocks.0.weight",
        "blocks.0.bias",
        "blocks.1.weight",
        "blocks.1.bias",
    ]
    assert names(net.named_buffers()) == ["steps", "cache"]
    assert names(net.named_children()) == ["first", "blocks"]
    assert names(net.named_modules()) == ["", "first", "blocks", "blocks.0", "blocks.1"]
    assert names(net.named_parameters(prefix="net", recurse=False)) == ["net.scale"]
    assert list(net.state_dict()) == ["scale", "steps", *names(net.named_parameters())[1:]]


def test_writes_to_a_registry_reach_the_attribute():
    layer = nn.Linear(2, 2)
    new = nn.Parameter(wisp.zeros(2, 2))
    layer._parameters["weight"] = new
    assert layer.weight is new
    del layer._parameters["weight"]
    assert not hasattr(layer, "weight")
    layer._parameters.update(weight=new)
    assert layer.weight is new
    assert layer._parameters.pop("weight") is new and not hasattr(layer, "weight")
    layer._parameters = {"other": new}
    assert layer.other is new and not hasattr(layer, "bias")


def test_assignment_moves_between_registries():
    m = nn.Module()
    m.x = 3
    m.x = nn.Parameter(wisp.zeros(1))
    assert "x" in m._parameters
    m.x = None
    assert m.x is None and "x" in m._parameters
    with pytest.raises(TypeError, match="cannot assign 'torch.(cuda.)?FloatTensor' as parameter 'x'"):
        m.x = wisp.zeros(1)
    del m.x
    assert not hasattr(m, "x")
    m.x = nn.ReLU()
    assert "x" in m._modules
    with pytest.raises(TypeError, match="as child module 'x'"):
        m.x = 3
    m.x = nn.Parameter(wisp.zeros(1))
    assert "x" in m._parameters and "x" not in m._modules
    m.register_buffer("b", None)
    m.b = wisp.ones(1)
    assert m._buffers["b"] is m.b
    with pytest.raises(TypeError, match="as buffer 'b'"):
        m.b = 3


def test_buffers_by_assignment():
    m = nn.Module()
    m.a = nn.Buffer(wisp.zeros(2))
    m.b = nn.Buffer(wisp.zeros(2), persistent=False)
    assert names(m.named_buffers()) == ["a", "b"] and list(m.state_dict()) == ["a"]
    assert isinstance(m.a, nn.Buffer) and not isinstance(wisp.zeros(2), nn.Buffer)


def test_buffers_may_be_what_answers_operators():
    class Like:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return NotImplemented

    m, like, other = nn.Module(), Like(), Like()
    m.register_buffer("b", like)
    assert m.b is like is m.get_buffer("b")
    m.b = other
    assert m.b is other is m.get_buffer("b")


def test_buffers_of_classes_that_know_no_persistence():
    class Older(nn.Module):
        def register_buffer(self, name, tensor):
            super().register_buffer(name, tensor)

    m = Older()
    m.b = nn.Buffer(wisp.ones(1))
    m.b = wisp.zeros(1)
    assert list(m.state_dict()) == ["b"] and m.b.item() == 0


def test_registration_errors():
    m = nn.Linear(2, 2)
    with pytest.raises(KeyError, match="t contain"):
        m.register_parameter("a.b", None)
    with pytest.raises(KeyError, match="empty string"):
        m.register_buffer("", None)
    with pytest.raises(KeyError, match="already exists"):
        m.register_buffer("weight", wisp.zeros(1))
    with pytest.raises(TypeError, match="not a Module subclass"):
        m.add_module("x", 3)
    with pytest.raises(TypeError, match="torch.nn.Parameter or None required"):
        m.register_parameter("x", wisp.zeros(1))
    with pytest.raises(TypeError, match="torch Tensor or None required"):
        m.register_buffer("x", 3)
    with pytest.raises(TypeError, match="should be a string"):
        m.add_module(3, nn.ReLU())


def test_before_init():
    class Forgetful(nn.Module):
        def __init__(self, what):
            self.number = 3
            self.x = what

    with pytest.raises(AttributeError, match="cannot assign parameters before"):
        Forgetful(nn.Parameter(wisp.zeros(1)))
    with pytest.raises(AttributeError, match="cannot assign module before"):
        Forgetful(nn.ReLU())
    assert Forgetful(4).x == 4


def test_shared_members_appear_once():
    m = nn.Module()
    m.a = nn.Linear(2, 2)
    m.b = m.a
    assert names(m.named_modules()) == ["", "a"]
    assert names(m.named_modules(remove_duplicate=False)) == ["", "a", "b"]
    assert names(m.named_parameters()) == ["a.weight", "a.bias"]
    assert len(names(m.named_parameters(remove_duplicate=False))) == 4


def test_the_walk_through_modules_is_in_order_and_takes_those_that_walk_themselves():
    class Closed(nn.Module):
        """Shows nothing of its inside."""

        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(1, 1)

        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            yield prefix, self

    shared = nn.Sequential(nn.ReLU())
    m = nn.Sequential(nn.Sequential(shared, nn.Tanh()), Closed(), shared, nn.Sequential())
    m.register_module("none", None)
    own = ["", "0", "0.0", "0.0.0", "0.1", "1", "3"]
    assert names(m.named_modules()) == own
    assert names(m.named_modules(prefix="p")) == ["p" + ("." + name if name else "") for name in own]
    assert names(m.named_modules(remove_duplicate=False)) == ["", "0", "0.0", "0.0.0", "0.1", "1", "2", "2.0", "3"]
    assert names(m.named_modules(memo={shared})) == ["", "0", "0.1", "1", "3"]
    seen = []
    for name, module in m.named_modules():  # what is added below a module while it is shown is walked through, too
        seen.append(name)
        if name == "3":
            module.add_module("late", nn.ReLU())
    assert seen == [*own, "3.late"]
    deep = nn.Module()
    inner = deep
    for _ in range(3000):  # deeper than generators within generators can go
        inner.next = nn.Module()
        inner = inner.next
    assert len(list(deep.named_modules())) == 3001


def test_paths():
    net = Net()
    assert net.get_submodule("blocks.1") is net.blocks[1] and net.get_submodule("") is net
    assert net.get_parameter("blocks.1.bias") is net.blocks[1].bias
    assert net.get_buffer("steps") is net.steps
    with pytest.raises(AttributeError, match="has no attribute `nope`"):
        net.get_submodule("blocks.nope")
    with pytest.raises(AttributeError, match="is not an nn.Module"):
        net.get_submodule("scale")
    with pytest.raises(AttributeError, match="is not an nn.Parameter"):
        net.get_parameter("first")
    relu = nn.ReLU()
    net.set_submodule("blocks.0", relu)
    assert net.blocks[0] is relu
    with pytest.raises(AttributeError):
        net.set_submodule("blocks.7", relu, strict=True)


def test_modes_and_gradients():
    net = Net()
    assert net.training and not net.eval().blocks[1].training and net.train().blocks[1].training
    with pytest.raises(ValueError, match="boolean"):
        net.train(1)
    net(wisp.ones(1, 3)).sum().backward()
    assert net.scale.grad is not None
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.item() == 0
    net.zero_grad()
    assert net.scale.grad is None
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_conversions_keep_parameters():
    net = Net()
    before = [id(p) for p in net.parameters()]
    net(wisp.ones(1, 3)).sum().backward()
    assert net.double() is net
    assert [id(p) for p in net.parameters()] == before
    assert net.scale.dtype == net.scale.grad.dtype == net.steps.dtype == wisp.float64
    assert net.float().scale.dtype == wisp.float32
    assert net.to(wisp.float64).scale.dtype == wisp.float64
    assert net.to("cpu", wisp.float32).scale.dtype == wisp.float32
    assert net.to(wisp.zeros(1, dtype=wisp.float64)).scale.dtype == wisp.float64
    assert net.to(dtype=wisp.float32, device=wisp.device("cpu"), non_blocking=True).scale.dtype == wisp.float32
    assert net.half().scale.dtype == wisp.float16 and net.bfloat16().scale.dtype == wisp.bfloat16
    with pytest.raises(TypeError, match="only accepts floating point"):
        net.to(wisp.int64)
    layer = nn.BatchNorm1d(3).double()
    assert layer.num_batches_tracked.dtype == wisp.int64
    assert nn.Linear(2, 3).to_empty(device="cpu").weight.shape == (3, 2)


def test_memory_format():
    conv = nn.Conv2d(3, 4, 3).to(memory_format=wisp.channels_last)
    assert conv.weight.is_contiguous(memory_format=wisp.channels_last)


def test_copy_and_pickle():
    net = Net()
    net.first.register_forward_hook(lambda *a: None)
    x = wisp.ones(2, 3)
    for other in (copy.deepcopy(net), copy.copy(net)):
        assert (other(x) == net(x)).all()
        assert other._parameters is not net._parameters
        assert other.__dict__["scale"] is other._parameters["scale"]
    other = copy.deepcopy(net)
    assert other.scale is not net.scale
    with wisp.no_grad():
        other.scale.fill_(7)
    assert net.scale.item() == 1
    other.extra = nn.ReLU()
    assert not hasattr(net, "extra")
    net.first._forward_hooks.clear()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(net, protocol))
        assert (again(x) == net(x)).all() and isinstance(again.scale, nn.Parameter)
        assert again.__dict__["scale"] is again._parameters["scale"]
        assert list(again.state_dict()) == list(net.state_dict())


def test_reduce_is_as_of_any_python_class():
    # StyleGAN2's persistent classes call it themselves
    make, arguments, state = nn.Linear(2, 3).__reduce__()
    assert arguments == (nn.Linear, object, None) and state["in_features"] == 2
    assert type(make(*arguments)) is nn.Linear


def test_no_reference_cycle():
    gc.collect()
    gc.disable()
    try:
        net = Net()
        seen = weakref.ref(net)
        del net
        assert seen() is None
    finally:
        gc.enable()


def test_repr():
    assert repr(nn.Linear(2, 3)) == "Linear(in_features=2, out_features=3, bias=True)"
    assert repr(nn.ReLU()) == "ReLU()"
    assert (
        repr(Net())
        == """Net(
  (first): Linear(in_features=3, out_features=4, bias=True)
  (blocks): ModuleList(
    (0-1): 2 x Linear(in_features=4, out_features=4, bias=True)
  )
)"""
    )
    assert repr(nn.Parameter(wisp.ones(2))) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"


def test_dir_and_attribute_errors():
    net = Net()
    assert {"scale", "first", "steps", "forward"} <= set(dir(net))
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        net.nothing
    with pytest.raises(NotImplementedError, match=r'Module \[Module\] is missing the required "forward" function'):
        nn.Module()(1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        nn.Module(x=1)


def test_errors_name_the_module():
    net = Net()
    net.blocks[1] = nn.Linear(5, 4)
    with pytest.raises(RuntimeError) as info:
        net(wisp.ones(1, 3))
    text = "in module blocks.1: Linear(in_features=5, out_features=4, bias=True)"
    assert text in getattr(info.value, "__notes__", [str(info.value)])[-1]
    with pytest.raises(RuntimeError) as info:
        nn.Linear(2, 2)(wisp.ones(1, 3))
    assert "Linear(in_features=2" in getattr(info.value, "__notes__", [str(info.value)])[-1]


def test_apply():
    order = []
    assert isinstance(Net().apply(lambda m: order.append(type(m).__name__)), Net)
    assert order == ["Linear", "Linear", "Linear", "ModuleList", "Net"]


def test_parameter():
    p = nn.Parameter(wisp.arange(3.0), requires_grad=False)
    assert isinstance(p, wisp.Tensor) and not p.requires_grad
    assert nn.Parameter(wisp.ones(1)).requires_grad
    assert type(p * 2) is wisp.Tensor
    q = copy.deepcopy(p)
    assert type(q) is nn.Parameter and q is not p and not q.requires_grad and (q == p).all()
    r = pickle.loads(pickle.dumps(p))
    assert type(r) is nn.Parameter and not r.requires_grad and (r == p).all()
    base = wisp.zeros(2)
    nn.Parameter(base).data.fill_(3)
    assert base.tolist() == [3, 3]


def test_sequential():
    a, b, c = nn.ReLU(), nn.Tanh(), nn.Sigmoid()
    s = nn.Sequential(a, b)
    assert s.append(c) is s and len(s) == 3 and s[-1] is c and list(s) == [a, b, c]
    assert list(s[1:]) == [b, c] and isinstance(s[1:], nn.Sequential)
    s[0] = c
    assert s[0] is c
    del s[0]
    assert list(s) == [b, c] and list(s._modules) == ["0", "1"]
    s.insert(0, a)
    assert list(s) == [a, b, c] and getattr(s, "2") is c
    s.extend(nn.Sequential(a))
    assert len(s) == 4 and s.pop(3) is a and len(s) == 3
    assert len(s + s) == 6 and len(s * 2) == 6 and len(2 * s) == 6
    s *= 2
    assert len(s) == 6
    with pytest.raises(IndexError):
        s[6]
    named = nn.Sequential(OrderedDict(x=nn.ReLU(), y=nn.Tanh()))
    assert named.y is named[1] and list(named[1:]._modules) == ["y"]


def test_module_list_and_dict():
    a, b, c = nn.ReLU(), nn.Tanh(), nn.Sigmoid()
    m = nn.ModuleList([a, b])
    m += [c]
    m.insert(1, c)
    assert list(m) == [a, c, b, c] and m[-1] is c and list(m[1:3]) == [c, b]
    assert m.pop(1) is c and list(m) == [a, b, c]
    del m[0:2]
    assert list(m) == [c] and list(m._modules) == ["0"]
    assert isinstance(m + [a], nn.ModuleList)
    with pytest.raises(TypeError):
        m.extend(3)
    d = nn.ModuleDict({"x": a, "y": b})
    d["z"] = c
    assert list(d) == ["x", "y", "z"] and d.pop("y") is b and "y" not in d and len(d) == 2
    d.update([("w", b)])
    assert list(d.keys()) == ["x", "z", "w"] and d.w is b
    d.clear()
    assert len(d) == 0 and not hasattr(d, "w")


def test_parameter_list_and_dict():
    m = nn.ParameterList([wisp.zeros(2), nn.Parameter(wisp.ones(3))])
    m.append(wisp.ones(1))
    assert len(m) == 3 and len(list(m.parameters())) == 3 and m[-1].shape == (1,)
    assert len(m[:2]) == 2
    m[0] = wisp.ones(5)
    assert isinstance(m[0], nn.Parameter)
    d = nn.ParameterDict({"b": wisp.zeros(1), "a": wisp.ones(1)})
    assert list(d) == ["a", "b"]
    d["c"] = wisp.ones(2)
    assert "c" in d and isinstance(d["c"], nn.Parameter) and len(list(d.parameters())) == 3
    assert d.pop("a").item() == 1 and len(d) == 2 and d.get("a") is None
    d |= {"z": wisp.ones(1)}
    assert list(d.keys()) == ["b", "c", "z"]


def test_lazy():
    m = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(2, bias=False))
    assert m[0].has_uninitialized_params()
    with pytest.raises(RuntimeError, match="uninitialized"):
        m[0].weight.shape
    weight, mean = m[0].weight, m[1].running_mean
    for use in (weight.numel, weight.sum, lambda: weight + 1, lambda: 1 - weight, lambda: weight[0], lambda: list(mean), mean.zero_):
        with pytest.raises(ValueError, match="uninitialized parameter in .* first forward pass"):
            use()
    assert isinstance(weight.requires_grad_(False).requires_grad_(True), nn.Parameter) and weight.dtype is wisp.float32
    m = copy.deepcopy(m).double()
    m(wisp.zeros(3, 5, dtype=wisp.float64))
    assert [type(x) for x in m] == [nn.Linear, nn.BatchNorm1d, nn.Linear]
    assert m[0].weight.shape == (4, 5) and m[2].in_features == 4 and m[0].weight.dtype == wisp.float64
    fresh = nn.LazyLinear(4)
    fresh.load_state_dict(m[0].state_dict())
    assert fresh.weight.shape == (4, 5)
    fresh(wisp.zeros(1, 5))
    assert fresh.in_features == 5


def test_moving_modules_refuses_what_pytorch_refuses():
    layer = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="copy"):
        layer.to("cpu", copy=True)
    with pytest.raises(TypeError):
        layer.to(wisp.device("cpu"), True)
    with pytest.warns(UserWarning, match="Complex modules"):
        layer.to(wisp.complex64)
    layer.plain = 5
    with pytest.raises(KeyError, match="already exists"):
        layer.plain = nn.Buffer(wisp.ones(1))


def test_layers_of_one_value_and_without_eps():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        nn.GroupNorm(10, 10)(wisp.rand(1, 10, 1))
    assert nn.InstanceNorm1d(2, eps=0, track_running_stats=True)(wisp.rand(2, 2, 5)).isfinite().all()
    with pytest.raises(RuntimeError, match="expected padding to be at most"):
        nn.Conv1d(1, 1, 3, padding=2**63 - 5)(wisp.zeros(1, 1, 10))
    for options in ({"acc_policy": "unknown"}, {"chunking_method": "aspect_ratio:0"}):
        with pytest.raises(ValueError):
            nn.LinearCrossEntropyOptions(**options)


def test_the_note_of_an_error_prints_no_tensors(monkeypatch):
    """A module that holds one is named: its text may take longer than the call did."""
    monkeypatch.setattr(wisp.Tensor, "__repr__", lambda self: pytest.fail("a tensor was printed"))
    with pytest.raises(TypeError) as info:
        nn.ReflectionPad1d(wisp.ones(1).expand(1000))(wisp.ones(2, 3))
    assert getattr(info.value, "__notes__", [str(info.value)])[-1].endswith("in module ReflectionPad1d")


def test_what_is_no_module_is_named():
    with pytest.raises(TypeError, match=r"relu is not a Module subclass; a function has a layer"):
        nn.Sequential(nn.Linear(2, 2), wisp.relu)
    with pytest.raises(TypeError, match=r"ReLU is not a Module subclass but the class itself: make a layer with ReLU"):
        nn.Sequential(nn.Linear(2, 2), nn.ReLU)
    with pytest.raises(TypeError, match="cannot assign 'torch.(cuda.)?FloatTensor' as parameter 'weight'"):
        nn.Linear(2, 2).weight = wisp.ones(2, 2)


def test_gradients_stay_the_same_objects_in_conversions():
    layer = nn.Linear(2, 3)
    layer(wisp.ones(1, 2)).sum().backward()
    held = layer.weight.grad
    layer.double()
    assert layer.weight.grad is held and held.dtype == wisp.float64 and held.tolist() == [[1.0, 1.0]] * 3


@pytest.mark.parametrize("eps", [0.0, -1.0])
def test_batch_norm_in_training_wants_a_positive_eps(eps):
    with pytest.raises(ValueError, match="eps must be positive during training"):
        nn.BatchNorm1d(2, eps=eps)(wisp.rand(3, 2))


def test_conversions_can_swap_parameters():
    future = importlib.import_module("wisp.__future__")
    future.set_swap_module_params_on_conversion(True)
    try:
        layer = nn.Linear(2, 3, device="meta")
        weight, before = layer.weight, layer.weight._cdata
        layer.to_empty(device="cpu")
        assert layer.weight is weight and weight.device.type == "cpu" and weight._cdata != before
        layer(wisp.ones(1, 2, device="cpu")).sum().backward()
        grad = weight.grad
        layer.to(wisp.float64)
        assert layer.weight is weight and weight.dtype is wisp.float64 and weight.requires_grad
        assert weight.grad is grad and grad.dtype is wisp.float64
    finally:
        future.set_swap_module_params_on_conversion(False)
    layer = nn.Linear(2, 3, device="meta")
    weight = layer.weight
    assert layer.to_empty(device="cpu").weight is not weight


class _SetsItsDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(2, 2), nn.Parameter(wisp.ones(1))

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__ = state


def _by_hand(module):
    made = module.__class__.__new__(module.__class__)
    made.__dict__.update({name: dict(value) if name == "_modules" else value for name, value in vars(module).items()})
    return made


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, _by_hand, lambda m: pickle.loads(pickle.dumps(m))])
def test_members_of_a_copy_whose_dict_was_set_by_hand_are_its_attributes(copied):
    """gpytorch's kernels restore themselves so, then replace their parts."""
    made, other = copied(_SetsItsDict()), nn.Linear(2, 3)
    made.layer = other
    made._parameters["scale"] = new = nn.Parameter(wisp.zeros(1))
    assert made.layer is other and made.scale is new and made._modules["layer"] is other
    assert made.double().layer.weight.dtype is wisp.float64 and made.scale is made._parameters["scale"]
    del made.layer
    assert not hasattr(made, "layer") and "layer" not in made._modules


def test_names_of_a_list_s_places():
    layers = nn.ModuleList([nn.Linear(1, 1), nn.ReLU()])
    assert layers._get_abs_string_index(-1) == "1"
    with pytest.raises(IndexError, match="out of range"):
        layers._get_abs_string_index(2)


def test_a_second_init_forgets_the_members():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.number = nn.Linear(2, 2), 1
            self.register_buffer("steps", wisp.zeros(1))
            super().__init__()
            assert not hasattr(self, "layer") and not hasattr(self, "steps") and self.number == 1
            self.add_module("layer", nn.Linear(2, 3))

    assert [tuple(p.shape) for p in Twice().parameters()] == [(3, 2), (3,)]


def test_more_layers_than_memory_has_places_for_are_refused_at_once():
    with pytest.raises(MemoryError):
        wisp.nn.TransformerDecoder(wisp.nn.Linear(2, 2), 2**60)


def test_a_getattr_of_its_own_is_asked_for_members():
    asked = []

    class Asking(nn.Module):
        def __getattr__(self, name):
            asked.append(name)
            return super().__getattr__(name)

    class Derived(nn.Linear, Asking):
        pass

    layer = Derived(2, 2)
    asked.clear()
    assert layer.weight is layer._parameters["weight"] and layer(wisp.ones(2)).shape == (2,) and asked == ["weight", "weight", "bias"]
    layer.weight = nn.Parameter(wisp.zeros(2, 2))
    assert not layer.weight.any() and hasattr(layer, "bias") and "bias" not in layer.__dict__
    del layer.bias
    assert not hasattr(layer, "bias")
    turned = nn.Linear(2, 2)
    turned.__class__ = Derived
    asked.clear()
    assert turned.bias is turned._parameters["bias"] and asked == ["bias"]


def test_members_made_while_listed_are_not_taken_for_each_other():
    class Doubling(nn.Module):
        def named_doubled(self):
            return self._named_members(lambda module: ((name, 2 * value) for name, value in module._parameters.items()), "", True)

    module = Doubling()
    module.first, module.second = nn.Linear(2, 2), nn.Linear(2, 2)
    assert names(module.named_doubled()) == ["first.weight", "first.bias", "second.weight", "second.bias"]
