"""torch.fx.passes: parts of graphs, what back ends support, splitting, drawing, and the examples of the modules."""

import doctest
import importlib
import operator
import pkgutil

import pytest

import wisp
import wisp.fx as fx
from wisp import nn
from wisp.fx.passes import graph_manipulation, net_min_base, param_fetch, pass_manager, splitter_base, tools_common
from wisp.fx.passes.graph_drawer import FxGraphDrawer
from wisp.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from wisp.fx.passes.operator_support import OperatorSupport, OpSupports, any_chain, chain, create_op_support
from wisp.fx.passes.shape_prop import ShapeProp
from wisp.fx.passes.split_module import split_module, split_module_simple
from wisp.fx.passes.split_utils import split_by_tags
from wisp.fx.passes.utils.fuser_utils import fuse_by_partitions, validate_partition

MODULES = [found.name for found in pkgutil.walk_packages(fx.__path__, "wisp.fx.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name), extraglobs={"wisp": wisp}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert not result.failed


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.weight = nn.Linear(4, 4), nn.Parameter(wisp.rand(4))

    def forward(self, x, y):
        a = self.linear(x) + self.weight
        left, right = wisp.std_mean(a, dim=1)
        return wisp.relu(a) * y + left[:, None], right


def calls(traced):
    return [node for node in traced.graph.nodes if node.op.startswith("call")]


def same(a, b):
    return all(wisp.allclose(one, other) for one, other in zip(a, b))


def adds(modules, node):
    return node.op == "call_function" and node.target in (operator.add, operator.getitem, wisp.std_mean)


def test_parts_are_large_and_have_no_circles():
    def f(a, b):
        c = a + b
        d = c.relu()
        return d + c + 1, b + 2  # c may not be with what uses d

    traced = fx.symbolic_trace(f)
    partitioner = CapabilityBasedPartitioner(traced, create_op_support(adds), allows_single_node_partition=True)
    parts = partitioner.propose_partitions()
    assert [{n.name for n in part.nodes} for part in parts] == [{"add_1", "add_2", "add_3"}, {"add"}]
    fused = partitioner.fuse_partitions(parts)
    assert same(fused(wisp.ones(2), wisp.ones(2)), f(wisp.ones(2), wisp.ones(2)))
    assert [name for name, _ in fused.named_children()] == ["fused_0", "fused_1"]
    apart = CapabilityBasedPartitioner(fx.symbolic_trace(f), create_op_support(adds), True, skip_horizontal_fusion=True)
    assert len(apart.propose_partitions()) == 3
    alone = CapabilityBasedPartitioner(fx.symbolic_trace(f), create_op_support(adds))
    assert [part.size() for part in alone.propose_partitions()] == [3]


def test_circles_through_other_parts_are_seen():
    def f(a):
        b = a + 1
        c = b.relu()
        d = b + 2
        e = d.relu()
        return c + 3, e + c

    traced = fx.symbolic_trace(f)
    fused = CapabilityBasedPartitioner(traced, create_op_support(adds), True).partition_and_fuse()
    assert same(fused(wisp.ones(2)), f(wisp.ones(2)))


def test_tuples_are_taken_apart_where_they_are_made():
    net = Net()
    traced = fx.symbolic_trace(net)
    support = create_op_support(lambda modules, node: node.target in (operator.add, wisp.std_mean, operator.getitem))
    parts = CapabilityBasedPartitioner(traced, support).propose_partitions()
    (home,) = [part for part in parts if any(node.target is wisp.std_mean for node in part.nodes)]
    assert {node.name for node in home.nodes} >= {"std_mean", "getitem", "getitem_1"}


def test_a_long_graph_is_partitioned_soon():
    graph = fx.Graph()
    value = graph.placeholder("x")
    for i in range(2000):
        value = graph.call_function(operator.add if i % 100 else wisp.relu, (value, 1) if i % 100 else (value,))
    graph.output(value)
    parts = CapabilityBasedPartitioner(fx.GraphModule({}, graph), create_op_support(adds)).propose_partitions()
    assert [part.size() for part in parts] == [99] * 20


def test_steps_that_compute_nothing_leave_the_borders():
    def f(x):
        return wisp.ops.aten.permute(wisp.ops.aten.view(x + 1, (2, 2)) + 1, (1, 0))

    support = create_op_support(lambda modules, node: node.op == "call_function")
    free = ["torch.ops.aten.view", "torch.ops.aten.permute"]
    partitioner = CapabilityBasedPartitioner(fx.symbolic_trace(f), support, True, free)
    parts = partitioner.propose_partitions()
    partitioner.remove_bookend_non_compute_ops(parts)
    assert [node.name for node in parts[0].nodes] == ["add", "view", "add_1"]


def test_groups_of_steps_become_modules():
    net, args = Net(), (wisp.rand(3, 4), wisp.rand(3, 4))
    traced = fx.symbolic_trace(net)
    by_name = {node.name: node for node in traced.graph.nodes}
    assert not validate_partition([by_name["linear"], by_name["relu"]])
    with pytest.raises(AssertionError, match="dependency cycles"):
        fuse_by_partitions(traced, [[by_name["linear"], by_name["relu"]]])
    fused = fuse_by_partitions(traced, [[by_name["add"], by_name["linear"], by_name["weight"]], [by_name["mul"], by_name["relu"]]])
    assert same(fused(*args), net(*args)) and fused.fused_0.linear is traced.fused_0.linear
    assert dict(fused.fused_0.named_parameters()).keys() == {"linear.weight", "linear.bias", "weight"}


def test_places_that_could_not_be_replaced_are_none():
    from wisp.fx.passes.utils.matcher_utils import SubgraphMatcher

    def f(x, y):
        z = wisp.matmul(x, y)
        return z * wisp.sigmoid(z)

    def pattern(a, b, c):
        z = wisp.matmul(a, b)
        return z, z * c

    assert SubgraphMatcher(fx.symbolic_trace(pattern).graph).match(fx.symbolic_trace(f).graph) == []


def test_supports_ask_targets_and_dtypes():
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    ShapeProp(traced).propagate(wisp.ones(1, 2))
    modules, (linear, relu) = dict(traced.named_modules()), calls(traced)
    kinds = OperatorSupport({"torch.nn.modules.linear.Linear": (([wisp.float64],), {}), "torch.nn.modules.activation.ReLU": None})
    assert not kinds.is_node_supported(modules, linear) and kinds.is_node_supported(modules, relu)
    names = OpSupports.decline_if_node_in_names({relu.name})
    floats = OpSupports.decline_if_input_dtype(wisp.float32)
    assert not chain(kinds, names).is_node_supported(modules, relu) and any_chain(kinds, names).is_node_supported(modules, relu)
    assert not floats.is_node_supported(modules, linear)


@pytest.mark.parametrize("options", [{}, {"keep_original_order": True}, {"tuple_return": True}, {"keep_original_node_name": True}])
def test_split_by_a_function(options):
    net, args = Net(), (wisp.rand(3, 4), wisp.rand(3, 4))
    traced, names = fx.symbolic_trace(net), {}
    order = {node: i for i, node in enumerate(calls(traced))}
    split = split_module(traced, None, lambda node: order[node] // 3, names, **options)
    assert same(split(*args), net(*args))
    assert names == {"submod_0.linear": "linear"} and split.meta["partition_names"] == {f"submod_{i}" for i in range(3)}
    assert [name for name, _ in split.named_parameters()].count("weight") == 1
    simple = split_module_simple(traced, {node: i // 2 for node, i in order.items()}, partition_affix="p")
    assert same(simple(*args), net(*args)) and "submod_p_0" in dict(simple.named_children())


def test_parts_in_a_circle_are_refused():
    traced = fx.symbolic_trace(lambda x: wisp.relu(wisp.neg(wisp.abs(x))))
    with pytest.raises(RuntimeError, match="cycle exists between partitions"):
        split_module(traced, None, lambda node: node.name == "neg")


def test_split_by_tags():
    net, args = Net(), (wisp.rand(3, 4), wisp.rand(3, 4))
    traced = fx.symbolic_trace(net)
    for i, node in enumerate(calls(traced)):
        node.tag = "first" if i < 3 else "second"
    split, names = split_by_tags(traced, ["first", "second"], return_fqn_mapping=True)
    assert same(split(*args), net(*args)) and names == {"linear": "first.linear", "weight": "first.weight"}


class Splitter(splitter_base._SplitterBase):
    def __init__(self, module, inputs, support, **settings):
        super().__init__(module, inputs, create_op_support(support), splitter_base._SplitterSettingBase(**settings))


def test_splitters_take_turns(capsys, tmp_path, monkeypatch):
    def f(x):
        return wisp.relu(wisp.neg(x).sum(1)[:, None] + x) * 2

    def support(modules, node):
        return node.target in (wisp.neg, wisp.relu, operator.mul)

    x = wisp.rand(2, 3)
    result = Splitter(fx.symbolic_trace(f), [x], support).generate_split_results()
    assert [*result.submodule_inputs] == ["_run_on_acc_0", "_run_on_cpu_1", "_run_on_acc_2"]
    assert wisp.equal(result.split_module(x), f(x))
    small = Splitter(fx.symbolic_trace(f), [x], support, min_acc_module_size=2)
    assert [name for name, _ in small().named_children()] == ["_run_on_cpu_0", "_run_on_acc_1"]
    with pytest.raises(ValueError, match="max_acc_splits"):
        Splitter(fx.symbolic_trace(f), [x], support, max_acc_splits=1).generate_split_results()
    monkeypatch.chdir(tmp_path)
    told = Splitter(fx.symbolic_trace(f), [x], support)
    assert "torch.relu: ((torch.float32,), {})" in told.node_support_preview(dump_graph=True)
    assert "Total input size in bytes is 24" in told.split_preview() and (tmp_path / "node_support.dot").exists()


def test_parts_of_the_accelerator_take_in_what_only_they_use():
    def f(x):
        return wisp.relu(wisp.neg(wisp.abs(x))), wisp.exp(x)

    splitter = Splitter(fx.symbolic_trace(f), [wisp.rand(2)], lambda modules, node: node.target is not wisp.exp)
    absolute, neg, relu, exp = calls(splitter.module)
    for node, tag in zip((absolute, neg, relu, exp), ("_run_on_cpu_0", "_run_on_cpu_0", "_run_on_acc_1", "_run_on_cpu_0")):
        node.tag = tag
    splitter.extend_acc_subgraph("_run_on_acc_1")
    assert [node.tag for node in (absolute, neg, relu, exp)] == ["_run_on_acc_1"] * 3 + ["_run_on_cpu_0"]


def test_values_that_are_no_tensors_stay_on_one_side():
    def f(x):
        size = x.size(0) + 1
        return wisp.neg(x) * size

    def support(modules, node):
        return node.op == "call_method" or node.target in (wisp.neg, operator.mul)

    found = Splitter(fx.symbolic_trace(f), [wisp.rand(2)], support).acc_nodes
    assert {node.name for node in found} == {"neg"}
    loose = Splitter(fx.symbolic_trace(f), [wisp.rand(2)], support, allow_non_tensor=True, skip_fusion=True).acc_nodes
    assert {node.name for node in loose} == {"size", "neg", "mul"}


class Minimizer(net_min_base._MinimizerBase):
    wrong = (wisp.neg,)

    def run_a(self, mod, inputs, report_idx=-1):
        return mod(*inputs)

    def run_b(self, mod, inputs, report_idx=-1):
        result = mod(*inputs)
        return result + 1 if any(node.target in self.wrong for node in mod.graph.nodes) else result


@pytest.mark.parametrize("method", ["sequential", "binary", "block", "accumulate", "skip", "defined"])
def test_minimizers_find_the_step_at_fault(method, capsys):
    traced = fx.symbolic_trace(lambda x: wisp.exp(wisp.relu(wisp.neg(wisp.abs(x)))))
    settings = net_min_base._MinimizerSettingBase(traverse_method=method)
    minimizer = Minimizer(traced, [wisp.ones(2)], lambda a, b, names: (0.0, wisp.equal(a, b)), settings)
    found = minimizer.minimize(skip_nodes=["abs_1", "exp"])
    wanted = {"skip": {"neg", "relu"}, "defined": {"abs_1", "neg", "relu", "exp"}}
    assert {node.name for node in found} == wanted.get(method, {"neg"})
    minimizer.wrong = ()
    assert minimizer.minimize(skip_nodes=["exp"]) == set()


def test_graphs_are_drawn(tmp_path):
    traced = fx.symbolic_trace(Net())
    ShapeProp(traced).propagate(wisp.rand(3, 4), wisp.rand(3, 4))
    dot = FxGraphDrawer(traced, "net").get_dot_graph()
    text = dot.to_string()
    assert text.startswith("digraph net {") and "x -> linear;" in text and '"linear.weight" -> linear;' in text
    assert "torch.nn.modules.linear.Linear|in_features: 4" in text and "shape=(3, 4)" in text
    dot.write_raw(tmp_path / "net.dot")
    assert (tmp_path / "net.dot").read_text() == text
    split = split_module(fx.symbolic_trace(Net()), None, lambda node: 0)
    assert list(FxGraphDrawer(split, "net").get_all_dot_graphs()) == ["net", "net_submod_0"]
    plain = FxGraphDrawer(traced, "net", ignore_getattr=True, ignore_parameters_and_buffers=True).get_dot_graph().to_string()
    assert "weight" not in plain


def test_small_passes():
    traced = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    param_fetch.lift_lowering_attrs_to_nodes(traced)
    graph_manipulation.get_size_of_all_nodes(traced, [wisp.ones(1, 2)])
    linear, relu = calls(traced)
    assert linear.attrs_for_lowering["name"] == "torch.nn.modules.linear.Linear" and relu.attrs_for_lowering["inplace"] is False
    assert linear.size_bytes == (12, 48) and relu.size_bytes.total_size == 12
    linear.prepend(relu)
    tools_common.legalize_graph(traced).graph.lint()
    manager = pass_manager.PassManager([pass_manager.inplace_wrapper(list.sort), sorted])
    manager.add_constraint(pass_manager.these_before_those_pass_constraint(sorted, list.sort))
    with pytest.raises(RuntimeError, match="constraint violated"):
        manager([2, 1])


def test_arguments_by_name():
    from wisp.fx.experimental.normalize import NormalizeArgs, NormalizeOperators
    from wisp.fx.operator_schemas import check_for_mutable_operation, normalize_function

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return nn.functional.softmax(wisp.add(self.linear(x), wisp.topk(x, 4)[0]), 1)

    x, net = wisp.rand(2, 4), Both()
    made = NormalizeArgs(fx.symbolic_trace(net)).transform()
    assert wisp.allclose(made(x), net(x))
    assert all(not node.args for node in calls(made) if node.target is not operator.getitem)
    (topk,) = made.graph.find_nodes(op="call_function", target=wisp.topk)
    assert {name: topk.kwargs[name] for name in ("k", "dim", "largest")} == {"k": 4, "dim": -1, "largest": True}
    plain = NormalizeOperators(fx.symbolic_trace(net)).transform()
    assert operator.add in [node.target for node in calls(plain)] and wisp.allclose(plain(x), net(x))
    with pytest.raises(RuntimeError, match="ambiguous"):
        normalize_function(wisp.max, (x, 1))
    assert normalize_function(wisp.max, (x, 1), arg_types=(wisp.Tensor, int)).kwargs == {"keepdim": False}
    with pytest.raises(RuntimeError, match="mutable operation"):
        check_for_mutable_operation(wisp.relu, (x,), {"out": x})
    assert normalize_function(wisp.ops.aten.add.Tensor, (1, 2), {}, None, None, True).kwargs["input"] == 1


def test_operators_write_to_what_nobody_needs():
    from wisp.fx.experimental.proxy_tensor import make_fx
    from wisp.fx.passes.reinplace import reinplace

    def f(x):
        a = x.clone()
        view = a.view(-1)
        b = a.add(1)  # a is needed through its view
        c = view.mul(b.sum()).add(2)
        return c.ge(b.sum()), c.expand(3, 2).mul(2), x.add(1)

    x = wisp.rand(2)
    traced = reinplace(make_fx(f)(x), x)
    assert [
        node.target._overloadname and str(node.target)
        for node in calls(traced)
        if str(node.target).partition(".")[2].startswith(("mul", "add"))
    ] == ["aten.add.Tensor", "aten.mul_.Tensor", "aten.add_.Tensor", "aten.mul.Tensor", "aten.add.Tensor"]
    before = x.clone()
    assert same(traced(x), f(x)) and wisp.equal(x, before)
    turned = reinplace(make_fx(lambda x: x.clone().t().t() + 1)(wisp.rand(2, 2)), wisp.rand(2, 2))  # views stay views
    assert [str(node.target) for node in calls(turned)] == ["aten.clone.default", "aten.t.default", "aten.t.default", "aten.add_.Tensor"]


def test_shapes_without_data():
    from wisp.fx.passes.fake_tensor_prop import FakeTensorProp

    traced = fx.symbolic_trace(Net())
    FakeTensorProp(traced).propagate(wisp.rand(3, 4), wisp.rand(3, 4))
    found = {node.name: node.meta["val"] for node in traced.graph.nodes}
    assert found["relu"].shape == (3, 4) and found["relu"].device.type == "meta" and len(found["std_mean"]) == 2
    assert next(traced.linear.parameters()).device.type == "cpu"


def test_unknown_sizes_that_are_the_same_get_one_name():
    from wisp.fx.experimental.graph_gradual_typechecker import GraphTypeChecker, Refine
    from wisp.fx.experimental.refinement_types import Equality, Var
    from wisp.fx.experimental.unify_refinements import infer_symbolic_types_single_pass, unify_eq
    from wisp.fx.tensor_type import Dyn, TensorType

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)

        def forward(self, x: TensorType((Dyn, 3, 8, Dyn))):
            return wisp.flatten(self.norm(self.conv(x)), 1)

    traced = fx.symbolic_trace(Twice())
    GraphTypeChecker({}, traced).type_check()
    infer_symbolic_types_single_pass(traced)
    x, conv, norm, flat, out = (node.type for node in traced.graph.nodes)
    assert x.dims[0] == conv.dims[0] == flat.dims[0] and conv == norm and out == flat and conv.dims[1:3] == (6, 6)
    assert isinstance(x.dims[0], Var) and Equality(x.dims[0], x.dims[0]) in (lambda r: r.refine() and r.constraints)(Refine(traced))
    with pytest.raises(TypeError, match="not the same"):
        unify_eq([Equality(Var(0), 2), Equality(Var(0), 3)])


def test_programs_that_ask_for_shapes_are_traced():
    import pickle

    from wisp.fx.experimental import meta_tracer

    class Asking(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.norm, self.scale = nn.Embedding(9, 4), nn.LayerNorm(4), nn.Parameter(wisp.rand(4))

        def forward(self, x):
            y = self.embedding(x)
            y = self.norm(y + wisp.arange(y.shape[-1], dtype=y.dtype, device=y.device) * self.scale)
            left, right = y.chunk(2, -1)
            y = y.view(len(y), y.size(-1)) + right.shape[1]
            return wisp.relu(y) if y.shape[0] < 5 else wisp.sigmoid(y)

    net = Asking()
    for length, last in ((3, wisp.relu), (6, wisp.sigmoid)):
        x = wisp.arange(length)
        traced = meta_tracer.symbolic_trace(net, {"x": x.to("meta")})
        assert traced.graph.nodes[-2].target is last and wisp.equal(pickle.loads(pickle.dumps(traced))(x), net(x))
    assert "__call__" not in vars(nn.Module)


def test_models_are_made_ready_for_inference():
    from wisp.fx.experimental import optimization

    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout()).eval()
    x, ready = wisp.rand(1, 1, 5, 5), optimization.optimize_for_inference(model)
    assert wisp.allclose(ready(x), model(x), atol=1e-6) and [type(m) for m in ready.children()] == [nn.Conv2d, nn.ReLU]
    kept = optimization.optimize_for_inference(model, {"remove_dropout": False, "conv_bn_fuse": False})
    modules = dict(kept.named_modules())
    norm = next(node for node in kept.graph.nodes if node.target == "1")
    assert optimization.matches_module_pattern([nn.Conv2d, nn.BatchNorm2d], norm, modules)
    optimization.replace_node_module(norm, modules, nn.Identity())
    assert isinstance(kept.get_submodule("1"), nn.Identity)


def test_steps_know_in_which_module_they_were_made():
    tracer = fx.Tracer()
    tracer.trace(nn.Sequential(nn.Sequential(nn.ReLU())))
    assert ("0.0", nn.ReLU) in tracer.node_name_to_scope.values() and tracer.scope.module_path == ""
