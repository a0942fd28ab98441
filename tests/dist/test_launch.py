"""`wisp launch`, torchrun's arguments, and programs that start their own ranks."""

import os
import pathlib
import re
import socket
import sys
import threading

import pytest
from ranks import PROGRAMS, command, free_port, good, launch_on_machines, run

from wisp.distributed import _world
from wisp.distributed import run as distributed_run
from wisp.distributed.stores import TCPStore

pytest.importorskip("mpi4py")


def test_arguments_of_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nimport wisp.as_torch\nimport torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "print(sys.argv[1:], os.environ['LOCAL_RANK'], dist.get_rank(), dist.get_world_size(), torch.get_num_threads())\n"
        "print('partial', end='')\n"
    )
    result = good(
        run(
            [
                sys.executable,
                "-m",
                "wisp.distributed.run",
                "--standalone",
                "--nnodes=1",
                "--nproc_per_node=2",
                "--max_restarts=0",
                "--threads=1",
                str(script),
                "--lr",
                "0.1",
            ]
        )
    )
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


def test_strangers_are_no_machines(monkeypatch):
    """Launchers that number themselves: whoever does not know the secret of the run gets no number and takes none away."""
    monkeypatch.setenv("WISP_SECRET", "ours")
    port, numbers = free_port(), {}
    first = threading.Thread(target=lambda: numbers.update(first=distributed_run._number_machine("127.0.0.1", port, 2)))
    first.start()
    TCPStore("127.0.0.1", port).get("port")  # the first one listens
    knocks = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(3)]  # silent, a browser, one that leaves
    knocks[1].sendall(b"GET / HTTP/1.1\r\n\r\n")
    knocks[2].close()
    monkeypatch.setenv("WISP_SECRET", "theirs")
    with pytest.raises(SystemExit, match="WISP_SECRET"):
        distributed_run._number_machine("127.0.0.1", port, 2)
    assert first.is_alive()
    monkeypatch.setenv("WISP_SECRET", "ours")
    numbers["second"] = distributed_run._number_machine("127.0.0.1", port, 2)
    first.join(60)
    assert numbers["first"][0] == 0 and numbers["second"] == (1, numbers["first"][1])


def test_the_file_with_the_secret_is_new(tmp_path, monkeypatch):
    """file://: what lies in a folder of others' is not written through."""
    monkeypatch.delenv("WISP_SECRET", raising=False)
    trap = tmp_path / "theirs"
    trap.write_text("")
    (tmp_path / "meeting.new").symlink_to(trap)
    old = os.umask(0)
    try:
        _world._start_meeting("127.0.0.1", 0, 1, 0.1, str(tmp_path / "meeting"))
    finally:
        os.umask(old)
    assert trap.read_text() == "" and (tmp_path / "meeting").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "meeting").read_text().split()[2] == os.environ["WISP_SECRET"]


def test_every_door_is_known():
    """Whatever listens is in these files, each of which has tests against strangers; no page is served."""
    source = pathlib.Path(distributed_run.__file__).parents[1]
    doors = [r"create_server\(", r"\.listen\(", r"\.bind\(\(", r"http\.server", "socketserver", r"start_server\(", r"Listener\("]
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if re.search("|".join(doors), path.read_text(encoding="utf-8"))}
    assert found == {"distributed/_world.py", "distributed/stores.py", "distributed/run.py"}


def test_the_parser_of_launches_has_torchruns_names():
    options = vars(distributed_run.get_args_parser().parse_args(["--nproc-per-node", "2", "train.py", "--lr", "1"]))
    assert options["training_script"] == "train.py" and options["training_script_args"] == ["--lr", "1"]
