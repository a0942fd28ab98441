"""torch.fx: tracing, changing and running graphs."""

import copy
import operator
import pickle

import pytest

import wisp
import wisp.fx as fx
from wisp import nn
from wisp.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.tail = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.weight = nn.Parameter(wisp.rand(4))

    def forward(self, x, scale=2.0):
        y = self.tail(self.linear(x) + self.weight).view(x.shape[0], -1) * scale
        left, right = y.chunk(2, dim=1)
        return {"out": F.interpolate(left[None], scale_factor=2.0), "sum": wisp.cat([left, right], dim=1).sum(), "weight": self.weight * 2}


def same(a, b):
    return all(wisp.equal(a[key], b[key]) for key in a)


def test_a_module_is_traced_and_runs_as_before():
    net, x = Net(), wisp.rand(3, 4)
    traced = fx.symbolic_trace(net)
    assert same(traced(x), net(x)) and same(traced(x, scale=1.0), net(x, 1.0))
    assert {node.op for node in traced.graph.nodes} == {"placeholder", "call_module", "call_function", "call_method", "get_attr", "output"}
    traced.graph.lint()
    assert same(copy.deepcopy(traced)(x), net(x)) and same(pickle.loads(pickle.dumps(traced))(x), net(x))
    assert same(fx.Interpreter(traced).run(x), net(x))
    assert [name for name, _ in traced.named_parameters()] and "forward" in traced.code


def test_nodes_can_be_replaced_inserted_and_erased():
    traced = fx.symbolic_trace(lambda x: wisp.relu(x) + x)
    relu = next(node for node in traced.graph.nodes if node.target is wisp.relu)
    with traced.graph.inserting_after(relu):
        twice = traced.graph.call_function(operator.mul, (relu, 2))
    relu.replace_all_uses_with(twice, lambda user: user is not twice)
    traced.recompile()
    assert traced(wisp.ones(1)).item() == 3
    dead = traced.graph.call_function(wisp.neg, (relu,))
    assert traced.graph.eliminate_dead_code() and dead._erased
    with pytest.raises(RuntimeError, match="users"):
        traced.graph.erase_node(relu)


def test_patterns_and_transformers():
    traced = fx.symbolic_trace(lambda x: wisp.sigmoid(wisp.relu(x)))
    fx.replace_pattern(traced, lambda x: wisp.relu(x), lambda x: wisp.abs(x))
    assert traced(wisp.tensor([-1.0])) == wisp.sigmoid(wisp.tensor([1.0]))

    class Negating(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(wisp.neg if target is wisp.abs else target, args, kwargs)

    assert Negating(traced).transform()(wisp.tensor([-2.0])) == wisp.sigmoid(wisp.tensor([2.0]))


def test_what_depends_on_values_is_refused():
    with pytest.raises(fx.proxy.TraceError):
        fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
    with pytest.raises(fx.proxy.TraceError):
        fx.symbolic_trace(lambda x: [y for y in x])


def test_leaf_modules_are_the_tracers_choice():
    class Inside(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return False

    graph = Inside().trace(nn.Sequential(nn.Linear(2, 2)))
    assert F.linear in [node.target for node in graph.nodes]


def test_modules_are_called_as_usual_after_tracing():
    fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    assert "__call__" not in vars(nn.Module) and "__getattribute__" not in vars(nn.Module)
    assert nn.ReLU()(wisp.tensor([-1.0])).item() == 0


def test_nested_concrete_arguments_come_apart_and_others_are_checked():
    def f(flag, x):
        return x["a"] + sum(x["z"]) if flag else x["a"]

    traced = fx.symbolic_trace(f, concrete_args={"flag": True, "x": {"a": fx.PH, "z": (fx.PH, fx.PH)}})
    value = {"a": wisp.ones(2), "z": (wisp.ones(2), wisp.ones(2))}
    assert traced(True, value).tolist() == [3, 3]
    assert "tree_flatten_spec" in traced.code
    with pytest.raises(AssertionError, match="flag has been specialized to have value True"):
        traced(False, value)
    assert pickle.loads(pickle.dumps(traced))(True, value).tolist() == [3, 3]


def test_functions_with_any_number_of_arguments():
    def f(x, *rest, **named):
        return x + rest[1] * named["scale"]

    assert fx.symbolic_trace(f)(1, 2, 3, scale=10) == 31


def test_a_codegen_of_the_program_decides_how_arguments_come():
    class FromList(fx.CodeGen):
        def gen_fn_def(self, free_vars, maybe_return_annotation):
            return f"def forward(self, values):\n    {', '.join(free_vars)} = values"

        def process_inputs(self, values):
            return values

    traced = fx.symbolic_trace(lambda a, b: a - b)
    traced.graph.set_codegen(FromList())
    traced.recompile()
    assert traced([5, 3]) == 2 == fx.Interpreter(traced).run([5, 3])
    assert fx.Transformer(traced).transform()([5, 3]) == 2


def test_dead_code_that_writes_or_draws_stays():
    def f(x):
        wisp.neg(x)
        wisp.rand(3)
        x.add_(1)
        wisp._assert(x.shape[0] > 1, "too short")
        return x

    graph = fx.symbolic_trace(f).graph
    graph.eliminate_dead_code()
    assert [str(n.target) for n in graph.nodes if n.op == "call_method"] == ["add_"]
    assert not graph.find_nodes(op="call_function", target=wisp.neg)
    assert graph.find_nodes(op="call_function", target=wisp._assert)


def test_steps_know_their_modules_types_and_lines():
    class Inner(wisp.nn.Module):
        def forward(self, x):
            return x * 2

    class Outer(wisp.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x: wisp.Tensor) -> wisp.Tensor:
            return self.inner(x)

    tracer = fx.Tracer()
    tracer.record_stack_traces = True
    graph = tracer.trace(Outer())
    (node,) = [n for n in graph.nodes if n.op == "call_function"]
    assert node.meta["nn_module_stack"] == {"inner": ("inner", Inner)}
    assert "return x * 2" in node.stack_trace
    moved = fx.Transformer(fx.GraphModule(tracer.root, graph)).transform()
    assert [n.stack_trace for n in moved.graph.nodes if n.op == "call_function"] == [node.stack_trace]
    assert "def forward(self, x : torch.Tensor) -> torch.Tensor:" in fx.symbolic_trace(Outer()).code


def test_passes_run_in_an_order_that_their_constraints_allow():
    from wisp.fx.passes.infra.pass_base import PassBase, PassResult
    from wisp.fx.passes.infra.pass_manager import PassManager, pass_result_wrapper, this_before_that_pass_constraint

    said = []

    class Replace(PassBase):
        def requires(self, graph_module):
            said.append("requires")

        def call(self, graph_module):
            found = [node for node in graph_module.graph.nodes if node.target is wisp.relu]
            for node in found:
                node.target = wisp.tanh
            return PassResult(graph_module, bool(found))

        def ensures(self, graph_module):
            said.append("ensures")

    first, second = pass_result_wrapper(lambda module: said.append("first")), Replace()
    manager = PassManager([second, first], [this_before_that_pass_constraint(first, second)])
    module, modified = manager(wisp.fx.symbolic_trace(lambda x: wisp.relu(x)))
    assert said == ["first", "requires", "ensures"] and modified
    assert wisp.equal(module(wisp.ones(2)), wisp.ones(2).tanh())
    manager.add_constraint(this_before_that_pass_constraint(second, first))
    with pytest.raises(RuntimeError, match="Circular dependency"):
        manager(module)
    with pytest.raises(Exception, match="running the '<lambda>' pass") as error:
        PassManager([lambda module: None])(module)
    assert "not a PassResult" in str(error.value.__cause__)


def test_shards_tell_their_parts():
    from wisp.distributed.tensor import Shard

    assert [Shard.local_shard_size_and_offset(10, 4, rank) for rank in range(4)] == [(3, 0), (3, 3), (3, 6), (1, 9)]


def test_the_class_of_a_graph_module_is_known_by_its_qualified_name():
    assert "GraphModuleImpl" in str(type(fx.symbolic_trace(nn.ReLU())))


def test_make_fx_notes_operators_and_gradients():
    from wisp.fx.experimental.proxy_tensor import make_fx

    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    x = wisp.randn(4, 2)
    loss = wisp.func.grad(lambda p, x: wisp.func.functional_call(model, p, (x,)).cos().sum())
    parameters = dict(model.named_parameters())
    traced = make_fx(loss)(parameters, x)
    assert all(node.op in ("placeholder", "call_function", "output") for node in traced.graph.nodes)
    other = {name: value.detach() * 2 for name, value in parameters.items()}
    for name, found in traced(other, x).items():
        assert wisp.allclose(found, loss(other, x)[name])

    def changed(x):
        y = x.clone()
        y.mul_(2)[0] = 5.0
        return y, wisp.zeros(2).add(1)

    traced = make_fx(changed)(wisp.ones(3))
    names = [node.target.__name__ for node in traced.graph.nodes if node.op == "call_function"]
    assert names[:2] == ["clone.default", "mul_.Tensor"] and "zeros.default" in names
    assert [value.tolist() for value in traced(wisp.tensor([1.0, 2.0, 3.0]))] == [[5.0, 4.0, 6.0], [1.0, 1.0]]
    with pytest.raises(RuntimeError, match="tracing tensor"):
        make_fx(lambda x: x if x.sum() > 0 else -x)(wisp.ones(2))
    doubled = make_fx(lambda x: x.tanh(), {wisp.ops.aten.tanh.default: lambda x: x.sin() * 2})(wisp.ones(2))
    assert wisp.allclose(doubled(wisp.ones(2)), wisp.ones(2).sin() * 2)


def test_constants_are_folded_and_equal_steps_joined():
    from wisp.fx.experimental.const_fold import split_const_subgraphs
    from wisp.fx.passes.dialect.common.cse_pass import CSEPass

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.other = nn.Parameter(wisp.ones(2)), nn.Parameter(wisp.full((2,), 3.0))

        def forward(self, x):
            return x * self.weight.exp().sum() + wisp.sin(self.other), x + self.other

    model, x = Scaled(), wisp.randn(2)
    folded = split_const_subgraphs(model)
    assert [node.target for node in folded.graph.nodes if node.op == "get_attr"] == [
        "_FX_CONST_FOLDED_ATTRS_0",
        "other",
        "_FX_CONST_FOLDED_ATTRS_1",
    ]
    assert all(wisp.equal(a, b) for a, b in zip(folded(x), model(x)))
    assert split_const_subgraphs(fx.symbolic_trace(lambda x: x + wisp.rand(2))).const_subgraph_module is None  # draws

    traced = fx.symbolic_trace(lambda x: (x.sum() + wisp.sin(x) * wisp.sin(x), wisp.rand_like(x) - wisp.rand_like(x)))
    joined, modified = CSEPass()(traced)
    assert modified and len(traced.graph.nodes) - len(joined.graph.nodes) == 1
    assert wisp.equal(joined(x)[0], traced(x)[0]) and joined(x)[1].abs().max() > 0


def test_patterns_of_several_results_and_filters():
    graph = fx.symbolic_trace(lambda a, b: wisp.relu(wisp.neg(wisp.neg(a) + b)) * (wisp.neg(a) + b))
    found = fx.subgraph_rewriter.replace_pattern_with_filters(
        graph, lambda x, y: wisp.neg(x) + y, lambda x, y: y - x, [lambda match, graph, pattern: True]
    )
    graph.graph.lint()
    a, b = wisp.randn(3), wisp.randn(3)
    assert len(found) == 2 and wisp.allclose(graph(a, b), wisp.relu(-(b - a)) * (b - a))
    assert [node.target for node in found[0].replacements] == [operator.sub]

    def shared(a):
        inner = wisp.sin(a)
        return inner + wisp.cos(inner)

    assert not fx.replace_pattern(fx.symbolic_trace(shared), lambda a: wisp.cos(wisp.sin(a)), lambda a: a)  # sin has a user outside

    class New(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Tanh()

        def forward(self, x):
            return self.layer(x)

    model = fx.symbolic_trace(nn.Sequential(nn.ReLU(), nn.ReLU()))
    assert len(fx.replace_pattern(model, lambda x: wisp.relu(x), New())) == 0
    traced = fx.symbolic_trace(lambda x: wisp.relu(wisp.relu(x)))
    assert len(fx.replace_pattern(traced, lambda x: wisp.relu(x), New())) == 2
    assert wisp.equal(traced(wisp.ones(1)), wisp.ones(1).tanh().tanh())


def test_asserts_and_operators_by_name_are_steps():
    from wisp.fx.experimental.rewriter import RewritingTracer

    class Checked(nn.Module):
        def forward(self, x, n):
            assert n == 2, "two of them"
            return x * n

    tracer = RewritingTracer()
    traced = fx.GraphModule(tracer.trace(Checked()) and tracer.root, tracer.graph)
    assert traced(3, 2) == 6
    with pytest.raises(AssertionError, match="two of them"):
        traced(3, 1)
    named = fx.symbolic_trace(lambda x: wisp.ops.aten.add.Tensor(x, x))
    assert [str(node.target) for node in named.graph.nodes] == ["x", "aten.add.Tensor", "output"]


def test_shapes_as_types():
    from wisp.fx.experimental.graph_gradual_typechecker import GraphTypeChecker
    from wisp.fx.tensor_type import Dyn, TensorType

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.pool, self.fc = nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, 2), nn.Linear(6 * 14 * 14, 10)

        def forward(self, x: TensorType((Dyn, 3, 32, 32))):
            return self.fc(wisp.flatten(self.pool(wisp.relu(self.conv(x))), 1))

    traced = fx.symbolic_trace(Net())
    assert GraphTypeChecker({}, traced).type_check()
    assert traced.graph.output_node().type == TensorType((Dyn, 10))
    assert traced(wisp.ones(2, 3, 32, 32)).shape == (2, 10)
    for wrong in (lambda x: wisp.reshape(x, [2, -1]), lambda x: wisp.transpose(x, 0, 4)):
        graph = fx.symbolic_trace(wrong)
        next(iter(graph.graph.nodes)).type = TensorType((3, 5))
        with pytest.raises(TypeError):
            GraphTypeChecker({}, graph).type_check()


def test_assert_of_a_traced_value_is_a_step():
    graph = wisp.fx.Graph()
    x = wisp.fx.Proxy(graph.placeholder("x"))
    wisp._assert(x.shape[-1] == 3, "three, please")
    graph.output((x + 1).node)
    module = wisp.fx.GraphModule(nn.Module(), graph)
    assert module(wisp.ones(3)).tolist() == [2, 2, 2]
    with pytest.raises(AssertionError, match="three, please"):
        module(wisp.ones(4))


@pytest.mark.parametrize("function", [lambda x: x[0], lambda x: x[:, 1:], lambda x: wisp.einsum("ij,kj->ik", x, x), F.normalize])
def test_make_fx_of_indices_and_functions_in_python(function):
    x = wisp.arange(6.0).reshape(2, 3)
    graph = fx.experimental.proxy_tensor.make_fx(function)(x)
    assert wisp.equal(graph(x + 1), function(x + 1)) and len(graph.graph.nodes) > 2


def test_operators_are_traced_alone():
    assert fx.symbolic_trace(wisp.relu).graph.nodes[1].target is wisp.relu


def test_functions_that_are_first_asked_for_while_tracing_are_steps():
    vars(wisp).pop("quantize_per_tensor", None)
    traced = fx.symbolic_trace(lambda x: wisp.quantize_per_tensor(wisp.quantize_per_tensor(x, 0.5, 3, wisp.quint8), 1.0, 0, wisp.quint8))
    assert len(traced.graph.nodes) == 4 and not hasattr(wisp.quantize_per_tensor, "__wrapped__")


def test_writes_can_be_refused():
    class Pure(fx.Tracer):
        check_mutable_operations = True

    with pytest.raises(RuntimeError, match="mutable operation aten::sigmoid.out"):
        Pure().trace(lambda x, y: wisp.sigmoid(x, out=y))


def test_hooks_see_what_becomes_of_steps():
    from wisp.fx.passes.graph_transform_observer import GraphTransformObserver

    traced, seen = fx.symbolic_trace(lambda x: wisp.neg(x) + 1), []
    traced._register_create_node_hook(seen.append)
    with GraphTransformObserver(traced, "to_relu"):
        fx.replace_pattern(traced, lambda x: wisp.neg(x), lambda x: wisp.relu(x))
        copied = copy.deepcopy(traced)
    assert [node.name for node in seen] == ["relu"]
    (source,) = seen[0].meta["from_node"]
    assert (source.name, source.pass_name) == ("neg", "to_relu") and [one.value for one in source.action] == ["replace", "create"]
    traced._unregister_create_node_hook(seen.append)
    assert copied._replace_hooks == [] == traced._create_node_hooks == traced._deepcopy_hooks


def test_steps_keep_what_a_program_says_of_them():
    from wisp.fx import traceback

    def f(x):
        with traceback.annotate({"stage": 1}):
            y = wisp.relu(x)
            with traceback.annotate({"last": True}):
                y = y + 1
        return y * 2

    traced = fx.symbolic_trace(f)
    assert [node.meta.get("custom") for node in traced.graph.nodes][1:4] == [{"stage": 1}, {"stage": 1, "last": True}, None]
    assert traceback.get_current_meta() == {} and not traceback.has_preserved_node_meta()
    source = traceback.NodeSource(traced.graph.nodes[1], "p", traceback.NodeSourceAction.CREATE)
    assert traceback.NodeSource._from_dict(source.to_dict()) == source and source in {source}


def test_modules_are_written_as_folders(tmp_path, monkeypatch):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.tail = nn.Linear(2, 2), nn.Sequential(nn.ReLU())
            self.weight = nn.Parameter(wisp.rand(2))
            self.scale = wisp.rand(2)

        def forward(self, x):
            return operator.getitem((self.tail(self.linear(x) * self.scale).sum(0) + self.weight).split(1), 0)

    traced, x = fx.symbolic_trace(Mixed()), wisp.rand(3, 2)
    assert "scale" in dict(traced.named_buffers())  # a tensor that is no parameter
    traced.to_folder(tmp_path / "written", "Written")
    monkeypatch.syspath_prepend(tmp_path)
    from written import Written

    assert wisp.equal(Written()(x), traced(x))


def test_graphs_with_operators_are_pickled():
    traced = fx.symbolic_trace(lambda x: wisp.ops.aten.add.Tensor(wisp.ops.aten.sigmoid(x), 1))
    assert pickle.loads(pickle.dumps(traced))(wisp.zeros(1)).item() == 1.5


def test_pools_are_noted_with_their_indices():
    from wisp.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(nn.MaxPool2d(2, padding=1))(wisp.rand(1, 1, 4, 4))
    assert traced.graph.nodes[1].args[1:] == ([2, 2], [2, 2], [1, 1]) and len(traced.graph.nodes) == 4
    assert traced(wisp.ones(1, 1, 4, 4)).shape == (1, 1, 3, 3)


def test_texts_are_checked_piece_by_piece():
    from wisp.testing import FileCheck

    text = "a = 1\nb = a  # twice\nc = b + b\nd"
    FileCheck().check("a = 1").check_next("b = a").check_same("twice").check_count("b", 2, exactly=True).check_regex(r"\bd").run(text)
    FileCheck().check("a").check_dag("d").check_dag("c =").check_not("e").run(text)
    FileCheck().check_source_highlighted("wrong").run("x = wrong(1)\n    ~~~~~ <--- HERE")
    for wrong in (
        FileCheck().check("b").check("a = 1"),
        FileCheck().check("a = 1").check_next("c ="),
        FileCheck().check("a = 1").check_same("twice"),
        FileCheck().check("a = 1").check_not("twice").check("c ="),
        FileCheck().check_count("b", 1, exactly=True),
        FileCheck().check_source_highlighted("b"),
    ):
        with pytest.raises(RuntimeError, match="Expected to"):
            wrong.run(text)


def test_modules_are_printed_with_what_is_known_of_them(capsys):
    from wisp.fx.experimental.proxy_tensor import make_fx

    text = make_fx(lambda x: wisp.sin(x) + 1, record_stack_traces=True)(wisp.rand(2, 3)).print_readable(include_stride=True)
    assert 'sin: "f32[2, 3][3, 1]" = torch.ops.aten.sin.default(x_1)' in text and "test_fx.py:" in text and 'x_1: "f32[2, 3]' in text
    traced = fx.symbolic_trace(Net())
    traced.add_submodule("inner", fx.symbolic_trace(nn.Sequential(nn.ReLU())))
    traced.graph.nodes[2].meta.update(number=7, custom={"a": 1})
    text = traced.print_readable(False, additional_meta=["number", "other"])
    assert "# number: 7, Annotation: {'a': 1}" in text and "    class inner(torch.nn.Module):\n        def forward(self, input" in text
    assert traced.code.startswith("\n\n\ndef forward(self, x, scale = 2.0):\n") and traced.code.endswith("\n    ")


def test_steps_are_named_as_pytorchs():
    def f(x):
        y = F.dropout(F.relu(F.linear(x, x)), 0.5)
        y += abs(x)
        return F.softmax(y[..., None], -1)

    traced = fx.symbolic_trace(f)
    assert traced.code.strip().splitlines()[1:] == [
        "    linear = torch.nn.functional.linear(x, x)",
        "    relu = torch.nn.functional.relu(linear, inplace = False);  linear = None",
        "    dropout = torch.nn.functional.dropout(relu, p = 0.5, training = True, inplace = False);  relu = None",
        "    abs_1 = _operator_abs(x);  x = None",
        "    add = dropout + abs_1;  dropout = abs_1 = None",
        "    getitem = add[(Ellipsis, None)];  add = None",
        "    softmax = torch.nn.functional.softmax(getitem, dim = -1, _stacklevel = 3, dtype = None);  getitem = None",
        "    return softmax",
    ]
    assert str(traced.graph).startswith("graph():\n    %x : [num_users=2] = placeholder[target=x]\n")
    assert fx.symbolic_trace(lambda x: wisp.einsum("i->", x.real)).graph.nodes[1].format_node().endswith("(args = (%x, real), kwargs = {})")


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("places", wisp.arange(3.0))

    def forward(self, x):
        assert self.places.numel() == 3 and self.places.max() > 1  # a buffer has values while a program is traced
        return doubled_where_positive(x + self.places)


def doubled_where_positive(x):
    return x * 2 if x.sum() > 0 else x


def test_buffers_are_tensors_and_functions_are_steps_where_a_program_imported_them():
    tracer = fx.Tracer(autowrap_functions=[doubled_where_positive])
    graph = tracer.trace(Positions())
    assert [(n.op, n.target) for n in graph.nodes if n.op in ("get_attr", "call_function")][0] == ("get_attr", "places")
    assert any(n.target is doubled_where_positive for n in graph.nodes)
    traced = fx.GraphModule(Positions(), graph)
    for x in (wisp.ones(3), -9 * wisp.ones(3)):
        assert wisp.equal(traced(x), Positions()(x))
    tracer = fx.Tracer(autowrap_functions=[doubled_where_positive])
    tracer.proxy_buffer_attributes = True
    with pytest.raises(fx.proxy.TraceError):
        tracer.trace(Positions())


def test_functions_are_steps_in_the_files_of_all_modules_that_are_called():
    place = {"function": doubled_where_positive, "nn": nn}
    exec("class Inner(nn.Module):\n    def forward(self, x):\n        return function(x)", place)
    root = nn.Sequential(place["Inner"]())
    traced = fx.GraphModule(root, fx.Tracer(autowrap_functions=[doubled_where_positive]).trace(root))
    assert doubled_where_positive in [node.target for node in traced.graph.nodes]
    assert traced(wisp.ones(2)).tolist() == [2.0, 2.0] and place["function"] is doubled_where_positive


def test_exported_programs_write_to_buffers_in_each_call():
    class Count(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", wisp.zeros(1))

        def forward(self, x):
            self.count.add_(1)
            return x * self.count

    program = wisp.export.export(Count(), (wisp.ones(2),)).module()
    first, second = program(wisp.ones(2)), program(wisp.ones(2))
    assert wisp.equal(second, first + 1)
