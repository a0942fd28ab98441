"""wisp.distributed.ray: workers on a Ray cluster of two (pretended) machines of one processor each, killed and not."""

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")
ray = pytest.importorskip("ray")
STEPS = 12


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    small = dict(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False)
    cluster = Cluster(initialize_head=True, head_node_args=small)
    cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def make_train():
    """A function by value: workers need not find this file."""

    def train(config):
        import os

        import wisp
        from wisp import nn
        from wisp.distributed.ray import get_checkpoint, report

        rank, size = wisp.distributed.get_rank(), wisp.distributed.get_world_size()
        wisp.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1)))
        optimizer = wisp.optim.AdamW(model.parameters(), lr=config["lr"])
        first, state = 0, get_checkpoint()
        if state is not None:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            first = state["step"]
        for step in range(first, config["steps"]):
            generator = wisp.Generator().manual_seed(step)
            x = wisp.randn(8, 6, generator=generator)
            y = x.prod(1, keepdim=True)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[rank::size]), y[rank::size])
            loss.backward()
            optimizer.step()
            wisp.distributed.all_reduce(loss.detach(), wisp.distributed.ReduceOp.AVG)
            done = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            report({"loss": loss, "step": step, "pid": os.getpid()}, checkpoint=done if step % 5 == 4 else None)
            if step >= config["fail"]:
                raise ValueError("bad luck")

    return train


def fit(**arguments):
    from wisp.distributed.ray import Trainer

    config = {"lr": 0.05, "steps": STEPS, "fail": 1000, **arguments.pop("config", {})}
    return Trainer(make_train(), num_workers=2, config=config, **arguments).fit()


def losses(result):
    return [entry["loss"] for entry in result.history]


def test_a_killed_worker_changes_nothing(cluster, tmp_path):
    import wisp

    quiet = fit(on_report=lambda metrics: None)
    assert [entry["step"] for entry in quiet.history] == list(range(STEPS)) and not quiet.failures
    assert quiet.metrics["loss"] < quiet.history[0]["loss"] and set(quiet.metrics_by_rank) == {0, 1}
    assert quiet.checkpoint["step"] == 10
    killed = []

    def kill(metrics):
        if metrics["step"] == 7 and not killed:
            killed.append(metrics["pid"])
            os.kill(metrics["pid"], signal.SIGKILL)

    disturbed = fit(on_report=kill, storage_path=tmp_path / "last.pt")
    assert killed and len(disturbed.failures) == 1 and "died" in disturbed.failures[0]
    assert losses(disturbed) == losses(quiet)
    assert wisp.load(tmp_path / "last.pt")["step"] == 10


def test_errors(cluster):
    from wisp.distributed.ray import Trainer, TrainingFailed, report

    with pytest.raises(TrainingFailed, match="(?s)rank [01] raised an error.*bad luck") as caught:
        fit(config={"fail": 6}, on_report=lambda metrics: None)
    assert caught.value.result.checkpoint["step"] == 5 and len(caught.value.result.history) >= 5
    with pytest.raises(TrainingFailed, match="found no room in 0.1 s; the cluster has"):
        Trainer(make_train(), num_workers=64, placement_timeout=0.1).fit()
    with pytest.raises(RuntimeError, match="this process is no worker"):
        report({})
    with pytest.raises(TypeError, match="train_fn must be a function"):
        Trainer(3)


def test_ray_is_not_imported_unasked():
    code = "import sys, wisp, wisp.distributed; wisp.nn.Linear(1, 1); assert 'ray' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
