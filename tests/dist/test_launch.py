"""`wisp launch`, torchrun's arguments, and programs that start their own ranks."""
import sys

import pytest
from ranks import PROGRAMS, command, free_port, good, launch_on_machines, run

pytest.importorskip("mpi4py")


def test_arguments_of_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, sys\nimport wisp.as_torch\nimport torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
                      "print(sys.argv[1:], os.environ['LOCAL_RANK'], dist.get_rank(), dist.get_world_size(), torch.get_num_threads())\n"
                      "print('partial', end='')\n")
    result = good(run([sys.executable, "-m", "wisp.distributed.run", "--standalone", "--nnodes=1", "--nproc_per_node=2", "--max_restarts=0",
                       "--threads=1", str(script), "--lr", "0.1"]))
    for rank in range(2):
        assert f"[{rank}] ['--lr', '0.1'] {rank} {rank} 2 1\n" in result.stdout and f"[{rank}] partial\n" in result.stdout


def test_two_machines():
    results = launch_on_machines(2, 2, "collectives")
    for machine, result in enumerate(results):
        good(result, [f"[{rank}] all is well in rank {rank}" for rank in (2 * machine, 2 * machine + 1)])


def test_machines_that_nobody_numbered():
    said = "".join(good(result).stdout for result in launch_on_machines(3, 1, "collectives", numbered=False))
    assert all(f"[{rank}] all is well in rank {rank}" in said for rank in range(3))


def test_a_rank_of_another_machine_is_killed():
    first, second = launch_on_machines(2, 1, "faults", "kill")
    assert first.returncode == 1 and "rank 1 is gone: the process has ended" in first.stderr, first.stderr
    assert second.returncode == 137 and "was killed by SIGKILL" in second.stderr, second.stderr


def test_a_failing_program(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, time\nif os.environ['RANK'] == '1':\n    raise KeyError('early')\ntime.sleep(600)\n")
    result = run(command("launch", "-n", 2, script))
    assert result.returncode == 1 and result.stderr.rstrip().endswith("KeyError: 'early'")
    assert run(command("launch", "-n", "none", script)).returncode != 0


def test_a_program_that_starts_its_ranks(tmp_path):
    good(run(command("run", PROGRAMS / "spawned.py", free_port(), tmp_path / "model.pt")), ["done 0", "done 1"])
    result = run(command("run", PROGRAMS / "spawned.py", free_port(), tmp_path / "model.pt", "fail"))
    assert result.returncode and "ValueError: bad luck" in result.stderr
