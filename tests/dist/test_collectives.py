"""wisp.distributed: every collective on 2, 3 and 4 ranks, however they were started."""

import concurrent.futures
import os
import pathlib
import shutil
import sys

import pytest
from ranks import PROGRAMS, command, free_port, good, launch, run

pytest.importorskip("mpi4py")


@pytest.mark.parametrize("count", [2, 4])
def test_under_launch(count):
    good(launch(count, "collectives"), [f"[{rank}] all is well in rank {rank}" for rank in range(count)])


def test_some_ranks_leave():
    good(launch(3, "shrink"), [f"[{rank}] all is well in rank {rank}" for rank in range(3)])


def test_a_way_to_meet_of_the_program_s_own():
    code = (
        "import wisp, wisp.distributed as dist\n"
        "def meet(url, rank=-1, world_size=-1):\n"
        f"    yield dist.TCPStore('127.0.0.1', {free_port()}, 2, rank == 0), rank, world_size\n"
        "dist.register_rendezvous_handler('ours', meet)\n"
        "dist.init_process_group('mpi', init_method='ours://somewhere', rank=OWN, world_size=2)\n"
        "x = wisp.ones(1)\n"
        "dist.all_reduce(x)\n"
        "print('sum', x.item())\n"
        "try:\n    dist.register_rendezvous_handler('ours', meet)\n"
        "except RuntimeError as error:\n    print(error)\n"
    )
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda rank: run([sys.executable, "-c", code.replace("OWN", str(rank))]), range(2)))
    for result in results:
        good(result, ["sum 2.0", "already registered"])


def test_under_mpiexec():
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    good(run([mpiexec, "-n", "2", sys.executable, str(PROGRAMS / "collectives.py")]), ["all is well in rank 0", "all is well in rank 1"])


def test_under_spawn(tmp_path):
    for method in (f"tcp://localhost:{free_port()}", f"file://{tmp_path}/meeting"):
        script = tmp_path / "script.py"
        script.write_text(
            f"import sys, wisp\nsys.path.insert(0, {str(PROGRAMS)!r})\nimport collectives as program\nif __name__ == '__main__':\n"
            f"    wisp.multiprocessing.spawn(program.on_spawned, args=(3, {method!r}), nprocs=3)\n"
        )
        good(run([sys.executable, str(script)]), [f"all is well in rank {rank}" for rank in range(3)])


def test_ranks_that_never_come(tmp_path):
    code = (
        "import wisp, datetime; wisp.distributed.init_process_group('mpi', rank=0, world_size=2, "
        f"init_method='tcp://localhost:{free_port()}', timeout=datetime.timedelta(seconds=1))"
    )
    result = run([sys.executable, "-c", code])
    assert result.returncode and "ranks [1] of 2 have not come" in result.stderr


def test_run_is_one_of_the_commands():
    assert "launch" in run(command()).stdout
