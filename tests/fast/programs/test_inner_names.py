"""Names of PyTorch's inner parts that libraries use, where they have something to do."""

import subprocess
import sys

import pytest

import wisp


def test_operators_of_programs_have_schemas():
    @wisp.library.custom_op("tests::scaled", mutates_args=())
    def scaled(x: wisp.Tensor, by: float = 2.0) -> wisp.Tensor:
        return x * by

    schema = wisp.ops.tests.scaled.default._schema
    assert [(one.name, one.has_default_value()) for one in schema.arguments] == [("x", False), ("by", True)] and len(schema.returns) == 1
    assert schema.name == "tests::scaled" and not schema.is_mutable
    older = wisp._C.parse_schema("tests::scaled(Tensor x) -> Tensor")
    assert schema.is_backward_compatible_with(older) and not older.is_backward_compatible_with(schema)
    assert not schema.is_backward_compatible_with(wisp._C.parse_schema("tests::scaled(Tensor y) -> Tensor"))
    assert wisp.ops.aten.relu.default._schema.arguments[0].name in ("input", "self")


def test_which_operators_write_and_view_by_their_names():
    from wisp.testing._internal.composite_compliance import is_inplace, is_inplace_view_fn, is_view_fn

    aten = wisp.ops.aten
    assert is_inplace(aten.add_.Tensor)
    assert not is_inplace(aten.add.Tensor)
    assert is_view_fn(aten.view.default) and not is_view_fn(aten.clone.default)
    assert is_inplace_view_fn(aten.squeeze_.dim) and not is_inplace_view_fn(aten.squeeze.dim)


def test_shapes_of_packed_sequences():
    from wisp.utils.flop_counter import _unpack_flash_attention_nested_shapes as shapes

    packed, ends = wisp.zeros(5, 2, 4), wisp.tensor([0, 2, 5])
    ends_given = {"cum_seq_q": ends, "cum_seq_k": ends, "max_q": 3, "max_k": 3}
    assert list(shapes(query=packed, key=packed, value=packed, **ends_given)) == [((1, 2, n, 4),) * 3 + (None,) for n in (2, 3)]


def test_modules_that_wrap_others_by_a_class_of_the_program():
    from wisp.distributed.algorithms._checkpoint.checkpoint_wrapper import ActivationWrapper

    class Twice(ActivationWrapper):
        def forward(self, x):
            return self._checkpoint_wrapped_module(self._checkpoint_wrapped_module(x))

    inner = wisp.nn.Linear(2, 2)
    model = Twice(inner)
    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()] == ["weight", "bias"]
    assert model.in_features == 2 and wisp.equal(model(wisp.ones(2)), inner(inner(wisp.ones(2))))
    model.load_state_dict(wisp.nn.Linear(2, 2).state_dict())
    with pytest.raises(TypeError, match="abstract"):
        ActivationWrapper(inner)


def test_a_device_is_the_current_one_within_a_block():
    with wisp.accelerator.device_index(None):
        assert wisp.ones(1).device.type == "cpu"
    assert wisp.backends.cuda.is_flash_attention_available() is False


def test_the_memory_of_the_accelerator_is_a_module_too():
    from wisp.accelerator import memory

    assert wisp.accelerator.memory is memory and all(getattr(wisp.accelerator, name) is getattr(memory, name) for name in memory.__all__)
    if not wisp.accelerator.is_available():
        assert memory.memory_allocated() == memory.max_memory_reserved() == 0 and memory.memory_stats() == {}
        assert memory.reset_accumulated_memory_stats() is None
        with pytest.raises(RuntimeError, match="no accelerator"):
            memory.get_memory_info()


def test_collectives_that_are_joined_have_ended_after_the_block():
    import wisp.distributed as distributed

    distributed.init_process_group(rank=0, world_size=1)
    try:
        x, y = wisp.ones(2), wisp.ones(3)
        with distributed._coalescing_manager():
            works = [distributed.all_reduce(one, async_op=True) for one in (x, y)]
        assert all(work is None or work.is_completed() for work in works) and x.tolist() == [1, 1]
        with distributed._coalescing_manager(async_ops=True) as joined:
            distributed.all_reduce(y)
        joined.wait()
    finally:
        distributed.destroy_process_group()


def test_how_graphs_write_operators():
    from wisp.fx.graph import inplace_methods, magic_methods, reflectable_magic_methods

    assert magic_methods["add"] == "{} + {}" and magic_methods["neg"] == "-{}" and inplace_methods["imul"] == "{} *= {}"
    assert len(reflectable_magic_methods) == 15 and len(magic_methods) == 24 and len(inplace_methods) == 14


def test_what_deepspeed_and_composer_import():
    from wisp.distributed.checkpoint.metadata import Metadata
    from wisp.distributed.checkpoint.planner import LoadPlan, LoadPlanner  # noqa: F401
    from wisp.distributed.checkpoint.storage import StorageReader
    from wisp.distributed.distributed_c10d import _pickler, _unpickler  # noqa: F401
    from wisp.profiler import _format_memory

    assert not isinstance({}, Metadata) and issubclass(wisp.distributed.checkpoint.FileSystemReader, StorageReader)
    assert wisp.distributed.GradBucket.__name__ == "GradBucket" and _format_memory(4096) == "4.00 KB"
    assert wisp._disable_dynamo(len)([1]) == 1 and wisp._disable_dynamo(recursive=False)(len)([1]) == 1


def test_what_a_data_parallel_module_says_of_itself():
    wisp.distributed.init_process_group(rank=0, world_size=1)
    try:
        data = wisp.nn.parallel.DistributedDataParallel(wisp.nn.Linear(2, 2))._get_ddp_logging_data()
    finally:
        wisp.distributed.destroy_process_group()
    assert data["module_name"] == "Linear" and data["total_parameter_size_bytes"] == 24 and data.get("can_set_static_graph") is None
    assert (data["rank"], data["world_size"], data["broadcast_buffers"]) == (0, 1, 1)


def test_the_kernel_of_an_operator_for_devices_without_one():
    wisp.library.define("tests::halved", "(Tensor x) -> Tensor")

    @wisp.library.register_kernel("tests::halved", "default")
    def halved(x):
        return x / 2

    assert wisp.ops.tests.halved(wisp.ones(2)).tolist() == [0.5, 0.5]


def test_layers_and_parameters_are_pytorchs_by_their_modules(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import io, pickle, torch\n"
        "assert torch.nn.Linear.__module__ == 'torch.nn.modules.linear' and torch.nn.Parameter.__module__ == 'torch.nn.parameter'\n"
        "model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())\n"
        "class Tracer(torch.fx.Tracer):\n"
        "    def is_leaf_module(self, m, name):\n"
        "        return m.__module__.startswith('torch.nn') and not isinstance(m, torch.nn.Sequential)\n"
        "assert [node.op for node in Tracer().trace(model).nodes] == ['placeholder', 'call_module', 'call_module', 'output']\n"
        "assert type(pickle.loads(pickle.dumps(model))[0]) is torch.nn.Linear\n"
        "file = io.BytesIO()\n"
        "torch.save([model, torch.nn.MultiheadAttention(2, 1), torch.nn.Parameter(torch.ones(2))], file)\n"
        "file.seek(0)\n"
        "loaded, attention, parameter = torch.load(file, weights_only=False)\n"
        "assert type(loaded[0]) is torch.nn.Linear and type(parameter) is torch.nn.Parameter\n"
        "assert type(torch.nn.Parameter(torch.nn.Parameter(torch.ones(1)))) is torch.nn.Parameter\n"
        "print('done')\n"
    )
    result = subprocess.run([sys.executable, "-m", "wisp.run", str(path)], capture_output=True, text=True)
    assert result.stdout == "done\n", result.stderr


WHOLE = """
import sys
import torch
from torch import nn
model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.LazyLinear(2), nn.MultiheadAttention(2, 1))
optimizer = torch.optim.Adam(model[0].parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
if sys.argv[1] == "save":
    torch.save((model, optimizer, schedule), sys.argv[2])
else:
    read = torch.load(sys.argv[2], weights_only=False)
    assert [type(layer) for layer in read[0]] == [type(layer) for layer in model], read
    assert [type(value) for value in read[1:]] == [type(optimizer), type(schedule)]
    assert all(isinstance(p, nn.Parameter) for p in read[0].parameters())
    read[0][:3](torch.ones(4, 2)).sum().backward()
    assert type(read[0][2]) is nn.Linear and read[1].param_groups[0]["params"][0] is read[0][0].weight
"""


def test_whole_models_go_between_programs_unmodified_and_of_wisp(tmp_path):
    theirs, ours = tmp_path / "theirs.py", tmp_path / "ours.py"
    theirs.write_text(WHOLE)
    ours.write_text(WHOLE.replace("import torch", "import wisp as torch").replace("from torch", "from wisp"))
    modes = {"unmodified": ["-m", "wisp.run", str(theirs)], "plain": [str(ours)]}
    for saver in modes:
        for what, command in (("save", modes[saver]), *(("load", command) for command in modes.values())):
            run = subprocess.run([sys.executable, *command, what, str(tmp_path / f"{saver}.pt")], capture_output=True, text=True)
            assert run.returncode == 0, run.stderr


def test_the_search_of_lbfgs_ends_where_its_interval_has_closed():
    from wisp.optim.lbfgs import _cubic_minimum

    slope = wisp.tensor(1.0)
    assert _cubic_minimum(0.5, 1.0, slope, 0.5, 2.0, slope) == 0.5


def test_a_library_sets_the_function_for_tensors_without_memory():
    lib = wisp.library.Library("tests_ir", "FRAGMENT")
    lib.define("wide(Tensor x) -> Tensor")
    lib.impl("wide", lambda x: wisp.cat([x, x]), dispatch_key="CompositeExplicitAutograd")
    lib._register_fake("wide", lambda x: x.new_empty(2 * x.shape[0]))
    assert wisp.ops.tests_ir.wide(wisp.ones(2)).tolist() == [1] * 4
    assert wisp.ops.tests_ir.wide(wisp.ones(3, device="meta")).shape == (6,)
    assert wisp.distributed._get_default_timeout("gloo").total_seconds() == 1800


def test_tensor_by_its_inner_module():
    from wisp._tensor import Tensor

    assert Tensor is wisp.Tensor
