"""`wisp run`, `python -m wisp.run`, `import wisp.as_torch`, `wisp check`: PyTorch programs under Wisp."""

import doctest
import importlib
import os
import subprocess
import sys

import pytest

import wisp

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(wisp.__file__)))


def python(*arguments, cwd=None):
    environment = dict(os.environ, PYTHONPATH=ROOT)
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=cwd)


def run_script(tmp_path, text, *arguments, module="wisp"):
    path = tmp_path / "program.py"
    path.write_text(text)
    command = ["run", str(path)] if module == "wisp" else [str(path)]
    return python("-m", module, *command, *arguments)


def good(tmp_path, text, *arguments, **options):
    result = run_script(tmp_path, text, *arguments, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_modules_are_the_same_objects(tmp_path):
    assert (
        good(
            tmp_path,
            """
import torch, torch.nn as nn, torch.nn.functional as F, torch.optim as optim
import torch.backends.cudnn as cudnn
import torch.utils.data as data
import torch.distributed as dist
from torch.autograd import Variable
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
import wisp
assert torch is wisp and nn is wisp.nn and F is wisp.nn.functional and data.DataLoader is DataLoader
assert isinstance(torch.ones(2), torch.Tensor) and torch.ones(2).type() == "torch.FloatTensor"
assert not torch.cuda.is_available() and dist.is_available() and not dist.is_initialized()
cudnn.benchmark = True
assert torch.backends.cudnn.benchmark
print("good")
""",
        )
        == "good\n"
    )


def test_versions_compare(tmp_path):
    good(
        tmp_path,
        """
import importlib.metadata, importlib.util, torch
assert torch.__version__ >= "1.10" and torch.__version__ > (2, 0) and not torch.__version__ < "2.9"
assert int(torch.__version__.split(".")[0]) == 2 and torch.__version__.startswith("2.")
assert importlib.metadata.version("torch").startswith("2.") and importlib.util.find_spec("torch") is not None
assert torch.version.cuda is None and isinstance(torch.version.__version__, str)
""",
    )


def test_arguments_main_and_pickles(tmp_path):
    out = good(
        tmp_path,
        """
import pickle, sys, torch
class Own(torch.nn.Module):
    pass
if __name__ == "__main__":
    assert sys.modules["__main__"].Own is Own
    copy = pickle.loads(pickle.dumps({"model": Own(), "dtype": torch.float32, "x": torch.ones(2)}))
    print(sys.argv[1:], copy["x"].tolist(), type(copy["model"]).__name__, torch.load)
""",
        "--epochs",
        "3",
        module="wisp.run",
    )
    assert out.startswith("['--epochs', '3'] [1.0, 1.0] Own")


def test_child_processes_find_torch(tmp_path):
    assert "3.0" in good(
        tmp_path,
        """
import subprocess, sys
import multiprocessing, torch
def work(queue):
    queue.put(float(torch.ones(3).sum()))
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start(); print(queue.get()); process.join()
    print(subprocess.run([sys.executable, "-c", "import torch.nn; print(torch.__version__)"], check=True))
""",
    )


def test_what_is_missing_is_named(tmp_path):
    out = good(
        tmp_path,
        """
import torch
for text in ("from torch.nn import Linearr", "import torch.nn.functionl", "torch.softplus", "import torchvision.models.video.mvit"):
    try:
        exec(compile(text, "there.py", "exec"))
    except (ImportError, AttributeError) as error:
        print(type(error).__name__, "|", error)
assert not hasattr(torch, "no_such_thing") and getattr(torch.nn, "Nope", 3) == 3
""",
    )
    lines = out.splitlines()
    assert "torch.nn.Linearr" in lines[0] and "there.py:1" in lines[0] and "closest: torch.nn.Linear" in lines[0]
    assert "torch.nn.functionl" in lines[1] and "torch.nn.functional" in lines[1]
    assert "torch.nn.functional.softplus" in lines[2]
    assert "ResNets of films" in lines[3]
    result = run_script(tmp_path, "import torch\n\ntorch.ones(2).no_such_method()\n")
    assert result.returncode == 1 and 'program.py", line 3' in result.stderr and "torch.Tensor.no_such_method" in result.stderr
    assert "runpy" not in result.stderr and "modules/run.py" not in result.stderr
    result = run_script(tmp_path, "from torch.utils.data import DataLoader\niter(DataLoader([1, 2])).next()\n")
    assert "since 1.13 either: say next(iterator)" in result.stderr


def test_exit_status_and_missing_file(tmp_path):
    assert run_script(tmp_path, "import sys\nsys.exit(3)\n").returncode == 3
    result = python("-m", "wisp", "run", "nowhere.py")
    assert result.returncode != 0 and "nowhere.py" in result.stderr
    assert "7" in python("-m", "wisp", "run", "-c", "import torch; print(torch.tensor(7).item())").stdout


def test_as_torch(tmp_path):
    result = python(
        "-c", "import wisp.as_torch, torch, torch.nn as nn; print(torch.__name__, nn.__name__, torch.torch is torch, torch.jit.__name__)"
    )
    assert result.stdout == "torch wisp.nn True torch.jit\n", result.stderr


def test_check_lists_what_is_missing(tmp_path):
    (tmp_path / "model.py").write_text(
        "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
        "class Net(nn.Module):\n    layer = nn.Linear(2, 3)\n    other = nn.Liner(2, 3)\n"
        "def f(x):\n    return F.relu(torch.no_such_operator(x))\n"
        "try:\n    import torchvision.models.optical_flow\nexcept ImportError:\n    pass\n"
    )
    result = python("-m", "wisp", "check", str(tmp_path))
    assert "model.py:6: torch.nn.Liner" in result.stdout and "torch.nn.Linear" in result.stdout
    assert "model.py:8: torch.no_such_operator" in result.stdout
    assert "torchvision.models.optical_flow" in result.stdout and "guarded" in result.stdout and result.returncode == 1
    (tmp_path / "model.py").write_text("import torch\nprint(torch.ones(2).sum())\n")
    result = python("-m", "wisp", "check", str(tmp_path))
    assert result.returncode == 0 and "0 missing" in result.stdout
    assert python("-m", "wisp", "check", str(tmp_path / "nowhere")).returncode != 0


def test_check_knows_a_programs_own_names(tmp_path):
    """Variables that hide an imported module, and what a program puts into PyTorch's modules, are not PyTorch's names."""
    (tmp_path / "model.py").write_text(
        "import torch\nfrom torch import nn, optim\nfrom torch.utils import data\nfrom torch.optim import optimizer\ntorch.torch.rand(2)\n"
        "nn.Masked = type('Masked', (nn.Linear,), {})\nlayer = nn.Masked(1, 2).extra\n"
        "def f(optimizer, *, rate=optim.no_such):\n    optimizer.no_step()\n    data, other = optimizer.no_data, lambda data: data.no_size\n"
        "    return data.no_mean + torch.no_such_name\n"
        "for data in []:\n    data.no_shape\n"
        "def g():\n    from torch import linalg\n    return linalg.no_such_norm, optimizer.no_such_class\n"
    )
    found = [line.split()[1] for line in python("-m", "wisp", "check", str(tmp_path)).stdout.splitlines() if "model.py:" in line]
    assert found == ["torch.optim.no_such", "torch.no_such_name", "torch.linalg.no_such_norm", "torch.optim.optimizer.no_such_class"]


def test_jit_compile_and_distributed(tmp_path):
    good(
        tmp_path,
        f"""
import os, torch, torch.nn as nn, torch.distributed as dist
import torch._dynamo
torch._dynamo.config.suppress_errors = True
torch._dynamo.config.cache_size_limit = max(torch._dynamo.config.cache_size_limit, 64)
with torch._dynamo.config.patch(verbose=True, cache_size_limit=1):
    pass
assert torch._dynamo.config.cache_size_limit == 64 and not torch._dynamo.config.verbose.anything
torch.set_float32_matmul_precision("high")
@torch.jit.script
def f(x):
    return x * 2
model = torch.compile(nn.Linear(2, 1), mode="max-autotune")
traced = torch.jit.trace(model, torch.ones(1, 2))
traced.save({str(tmp_path / "model.pt")!r})
again = torch.jit.load({str(tmp_path / "model.pt")!r})
assert torch.equal(again(torch.ones(1, 2)), model(torch.ones(1, 2))) and f(torch.ones(1)).item() == 2
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="29500")
dist.init_process_group("gloo")
ddp = nn.parallel.DistributedDataParallel(model)
x = torch.ones(3); dist.all_reduce(x); dist.barrier()
assert dist.get_world_size() == 1 and x.tolist() == [1, 1, 1] and list(ddp.state_dict())[0] == "module._orig_mod.weight"
sampler = torch.utils.data.distributed.DistributedSampler(range(5))
assert len(list(sampler)) == 5
dist.destroy_process_group()
import io
file = io.BytesIO()
torch.onnx.export(model, torch.ones(1, 2), file, input_names=["x"])
assert b"Gemm" in file.getvalue()
""",
    )


@pytest.mark.parametrize(
    "name",
    [
        "wisp.jit",
        "wisp.compiler",
        "wisp.futures",
        "wisp.accelerator",
        "wisp.torch_version",
        "wisp.distributed.collectives",
        "wisp.distributed.objects",
        "wisp.distributed._groups",
        "wisp.distributed._work",
        "wisp.distributed.optim.zero_redundancy_optimizer",
        "wisp.distributed.nn.functional",
        "wisp.nn.parallel.distributed",
        "wisp.utils.benchmark",
        "wisp.nn.parallel.data_parallel",
        "wisp.fx._symbolic_trace",
        "wisp.fx.graph",
        "wisp.fx.graph_module",
        "wisp.fx.interpreter",
        "wisp.fx.node",
        "wisp.fx.subgraph_rewriter",
        "wisp.fx.passes.shape_prop",
        "wisp.overrides",
        "wisp.library",
        "wisp.export",
        "wisp.utils.flop_counter",
        "wisp.utils.weak",
        "wisp.utils.module_tracker",
        "wisp.nn.attention.bias",
        "wisp.fx.experimental.optimization",
        "wisp._higher_order_ops.loops",
        "wisp._higher_order_ops.associative_scan",
        "wisp.nn.attention.flex_attention",
        "wisp.nn.parallel.comm",
        "wisp.nn.parallel.scatter_gather",
    ],
)
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0 and result.attempted > 0


def test_replicas_share_gradients():
    from wisp.nn.parallel import gather, parallel_apply, replicate, scatter

    model = wisp.nn.Sequential(wisp.nn.Linear(3, 4), wisp.nn.ReLU(), wisp.nn.Linear(4, 2))
    x = wisp.randn(6, 3)
    copies = replicate(model, ["cpu", "cpu"])
    gather(parallel_apply(copies, scatter(x, ["cpu", "cpu"])), "cpu").square().sum().backward()
    split = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    for one, parameter in zip(split, model.parameters()):
        wisp.testing.assert_close(one, parameter.grad)


def test_memory_histories_of_programs_that_look_for_leaks(tmp_path):
    import pickle

    wisp.cuda.memory._record_memory_history(max_entries=100)
    wisp.cuda.memory._dump_snapshot(tmp_path / "snapshot.pickle")
    assert pickle.loads((tmp_path / "snapshot.pickle").read_bytes())["device_traces"] == []
    wisp.cuda.memory._record_memory_history(enabled=None)
    with pytest.raises(RuntimeError, match="expected enabled to be"):
        wisp.cuda.memory._record_memory_history("everything")


def test_tensors_between_devices():
    """What torch.cuda.comm has; its inner forms are called by code for synchronised norms."""
    import wisp.nn.parallel._functions as inner
    from wisp.cuda import comm

    x = wisp.arange(6.0).requires_grad_()
    parts = comm.scatter(x, ["cpu", "cpu"], chunk_sizes=[4, 2])
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3], [4, 5]]
    joined = comm.gather([2 * parts[0], 3 * parts[1]], destination="cpu")
    joined.sum().backward()
    assert x.grad.tolist() == [2, 2, 2, 2, 3, 3]
    sums = comm.reduce_add_coalesced([[wisp.ones(2), wisp.ones(1)], [wisp.ones(2), 2 * wisp.ones(1)]], "cpu")
    assert [part.tolist() for part in sums] == [[2, 2], [3]]
    assert [part.tolist() for part in inner.ReduceAddCoalesced.apply("cpu", 1, wisp.ones(1), wisp.ones(1))] == [[2]]
    assert len(inner.Broadcast.apply(["cpu", "cpu"], wisp.ones(1), wisp.ones(2))) == 4
    with pytest.raises(ValueError, match="same shape"):
        comm.reduce_add([wisp.ones(2), wisp.ones(1)])
    with pytest.raises(RuntimeError, match="Exactly one of 'devices' and 'out'"):
        comm.broadcast(wisp.ones(1))


def test_results_may_be_changed_in_place_where_pytorch_allows_it():
    """Operators keep their inputs, not their results, for backward where PyTorch does."""
    for function in (lambda a, b: a / b, lambda a, b: wisp.logaddexp(a, b), lambda a, b: a * b, lambda a, b: wisp.atan2(a, b)):
        a, b = wisp.rand(3, dtype=wisp.double, requires_grad=True), wisp.rand(3, dtype=wisp.double, requires_grad=True)
        result = function(a, b)
        result *= 2
        result.sum().backward()
        found = a.grad.clone(), b.grad.clone()
        a.grad = b.grad = None
        (function(a, b) * 2).sum().backward()
        wisp.testing.assert_close(found, (a.grad, b.grad))


def test_flex_attention():
    from wisp.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (wisp.rand(2, 2, 5, 4) for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 5, 5)
    wisp.testing.assert_close(
        flex_attention(q, k, v, block_mask=mask), wisp.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    )


def test_old_sparse_names():
    indices, values = wisp.LongTensor([[0, 1, 1], [2, 0, 2]]), wisp.FloatTensor([3, 4, 5])
    matrix = wisp.sparse.FloatTensor(indices, values, wisp.Size([2, 3]))
    dense = wisp.rand(3, 2, requires_grad=True)
    product = wisp.spmm(matrix, dense)
    product.sum().backward()
    wisp.testing.assert_close(product, matrix.to_dense() @ dense)
    wisp.testing.assert_close(dense.grad[:, 0], matrix.to_dense().sum(0))


def test_importing_a_module_leaves_the_function_of_its_name():
    names = "autograd.gradcheck nn.utils.weight_norm nn.utils.spectral_norm nn.parallel.data_parallel multiprocessing.spawn".split()
    imports = "".join(f", torch.{name}" for name in names)
    result = python("-c", f"import wisp.as_torch, torch{imports}; print({', '.join(f'callable(torch.{name})' for name in names)})")
    assert result.stdout.split() == ["True"] * len(names), result.stderr


def test_a_module_has_one_object_under_both_names():
    code = "import wisp.as_torch, sys, torch.testing, torch.nn.utils.prune; "
    code += "print(*(sys.modules['torch' + n] is sys.modules['wisp' + n] for n in ('.testing', '.nn.utils.prune')), torch.testing is sys.modules['wisp.testing'])"
    assert python("-c", code).stdout.split() == ["True"] * 3


def test_check_says_what_it_did_not_see(tmp_path):
    (tmp_path / "own.py").write_text("")
    (tmp_path / "model.py").write_text(
        "import os, numpy, own, torch, surely_not_installed\nfrom torch.nn import *\ntorch.classes.Library.Thing\ntorch.ones(2)\n"
    )
    result = python("-m", "wisp", "check", str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    told = [line.partition("  (")[0] for line in result.stdout.splitlines() if line.startswith("not followed")]
    assert told == ["not followed: surely_not_installed", "not followed: from torch.nn import *"]
    assert "model.py:1" in result.stdout and "2 imports were not followed" in result.stdout
    (tmp_path / "broken.py").write_text("def (:\n")
    result = python("-m", "wisp", "check", str(tmp_path))
    assert result.returncode == 1 and "not read: " in result.stdout and "1 could not be read" in result.stdout


def test_the_end_of_a_program_is_told_as_python_tells_it(tmp_path):
    result = run_script(tmp_path, "import torch\nin_channels = 3\nprint(in_channel)\n")
    assert result.returncode == 1 and "Did you mean: 'in_channels'?" in result.stderr and "run.py" not in result.stderr
    result = run_script(tmp_path, "import torch\nprint((1)\n")
    assert "SyntaxError" in result.stderr and "program.py" in result.stderr and "Traceback" not in result.stderr
    hook = "import sys\nsys.excepthook = lambda kind, error, trace: print(kind.__name__, error, trace.tb_lineno)\n"
    result = run_script(tmp_path, hook + "import torch\nraise ValueError('seen')\n")
    assert result.returncode == 1 and result.stdout == "ValueError seen 4\n" and "Traceback" not in result.stderr


def test_torchvision_brings_the_parts_of_pillow(tmp_path):
    pytest.importorskip("PIL")
    text = "import PIL\nimport torchvision\nprint(PIL.Image.new('RGB', (2, 3)).size, PIL.ImageOps.__name__)\n"
    assert good(tmp_path, text) == "(2, 3) PIL.ImageOps\n"
