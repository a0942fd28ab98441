"""What a report of a problem should say about the machine: `python -m wisp.utils.collect_env`.

>>> from wisp.utils import collect_env
>>> collect_env.get_pretty_env_info().splitlines()[0].startswith("Wisp version:")
True
"""

import os
import platform
import sys
from collections import namedtuple
from importlib import metadata

import wisp

SystemEnv = namedtuple(
    "SystemEnv",
    """
    torch_version is_debug_build os libc_version python_version python_platform cpu_info num_threads is_cuda_available gpus
    pip_packages""",
)

_PACKAGES = ("wisp", "numpy", "scipy-openblas32", "scikit-learn", "pillow", "safetensors", "nvidia-cudnn", "nvidia-cublas")


def get_cpu_info():
    """The processor's name and how many there are."""
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        name = names[0] if names else name
    return f"{name}, {os.cpu_count()} processors"


def get_pip_packages():
    """The installed packages that matter here, one in a line."""
    found = []
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name.startswith(_PACKAGES):
            found.append(f"{name}=={distribution.version}")
    return "\n".join(sorted(set(found)))


def get_env_info():
    """All facts, as a named tuple."""
    cuda = wisp.cuda.is_available()
    gpus = [wisp.cuda.get_device_name(i) for i in range(wisp.cuda.device_count())] if cuda else []
    return SystemEnv(
        torch_version=wisp.__version__,
        is_debug_build="False",
        os=f"{platform.system()} {platform.release()}",
        libc_version="-".join(platform.libc_ver()),
        python_version=sys.version.replace("\n", " "),
        python_platform=platform.platform(),
        cpu_info=get_cpu_info(),
        num_threads=wisp.get_num_threads(),
        is_cuda_available=str(cuda),
        gpus=", ".join(gpus) or "none",
        pip_packages=get_pip_packages(),
    )


def get_pretty_env_info():
    """All facts, as text."""
    facts = get_env_info()
    packages = "\n".join("  " + line for line in facts.pip_packages.splitlines())
    return (
        f"Wisp version: {facts.torch_version}\nOS: {facts.os}\nLibc version: {facts.libc_version}\n"
        f"Python version: {facts.python_version}\nPython platform: {facts.python_platform}\nCPU: {facts.cpu_info}\n"
        f"Threads: {facts.num_threads}\nIs CUDA available: {facts.is_cuda_available}\nGPU: {facts.gpus}\n"
        f"Packages:\n{packages}"
    )


def main():
    """Print all facts."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
