"""The NCCL backend between several ranks, on a library that stands in for NVIDIA's."""

import os
import socket
import subprocess
import sys

import pytest

pytest.importorskip("mpi4py")
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module")
def launch(stand_in):
    library = os.path.join(stand_in.folder, "libnccl.so.2")
    source = os.path.join(HERE, "fake_nccl.cpp")
    subprocess.run([os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-shared", "-fPIC", "-o", library, source, "-lrt"], check=True)

    def start(options, what):
        environment = dict(
            os.environ, WISP_CUDA_PATH=stand_in.folder, WISP_CACHE=os.path.join(stand_in.folder, "cache"), FAKE_CUDA_DEVICES="3"
        )
        command = [sys.executable, "-m", "wisp.distributed.run", *map(str, options), os.path.join(HERE, "nccl_ranks.py"), what]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


@pytest.mark.parametrize("count", [2, 3])
def test_ranks(launch, count):
    process = launch(["-n", count], "all")
    said, wrong = process.communicate()
    assert process.returncode == 0, said + wrong
    assert all(f"all is well in rank {rank}" in said for rank in range(count))


def test_a_rank_that_is_gone(launch):
    """Rank 0's launcher knows nothing of rank 1, and its host waits for the GPU: the thread that watches must end it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    first, second = (launch(["--nnodes", 2, "--node-rank", node, "--master-port", port], "gone") for node in range(2))
    wrong = first.communicate()[1]
    second.communicate()
    assert first.returncode == 1 and "rank 0 can't end: rank 1 is gone: the process has ended" in wrong, wrong
    assert second.returncode == 137
