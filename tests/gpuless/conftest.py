"""CUDA's host side without a GPU: a library that stands in for NVIDIA's is built here and found through WISP_CUDA_PATH."""

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
STANDS_FOR = [
    "libcuda.so.1",
    "libnvrtc.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libcufft.so.12",
    "libcublas.so.13",
    "libcusolver.so.12",
]


class StandIn:
    """Runs Python programs that see the stand-in."""

    def __init__(self, folder):
        self.folder = folder
        self.kernels = os.path.join(folder, "kernels.txt")

    def run(self, *arguments, **more):
        environment = dict(
            os.environ, WISP_CUDA_PATH=self.folder, WISP_CACHE=os.path.join(self.folder, "cache"), FAKE_CUDA_KERNELS=self.kernels, **more
        )
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:] or f"ended by signal {-done.returncode}"
        return done.stdout

    def noted(self):
        """The kernels that were asked for, as {file: instances}."""
        found = {}
        for line in open(self.kernels):
            file, instance = line.rstrip("\n").split("\t")
            found.setdefault(file, set()).add(instance)
        return found


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("cuda"))
    first, *others = [os.path.join(folder, name) for name in STANDS_FOR]
    source = os.path.join(HERE, "fake_cuda.cpp")
    subprocess.run([os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-shared", "-fPIC", "-o", first, source], check=True)
    for other in others:
        os.symlink(first, other)
    return StandIn(folder)
