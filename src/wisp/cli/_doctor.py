"""What `wisp doctor` says about CUDA, and how it compiles kernels ahead."""

import os
import sys

from wisp import _core

_cuda = _core._operators["_cuda"]
_LIBRARIES = {  # what each is for, and the package that brings it
    "nvrtc": ("compiles kernels", "nvidia-cuda-nvrtc"),
    "cublasLt": ("matrix products", "nvidia-cublas"),
    "cudnn": ("convolution", "nvidia-cudnn-cu13"),
    "cufft": ("wisp.fft", "nvidia-cufft"),
    "cusolver": ("wisp.linalg", "nvidia-cusolver"),
}


def _version(name, number):
    if name == "cudnn":
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    if name == "cublasLt":
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return f"{number // 1000}.{number // 10 % 100}" + (f".{number % 10}" if number % 10 else "")


def cuda_facts():
    """Pairs of a name and what there is to say about it: driver, devices, libraries, cache.

    >>> from wisp.cli._doctor import cuda_facts
    >>> "cuda" in dict(cuda_facts())
    True
    """
    facts = []
    try:
        driver = _cuda["driver_version"]()
        facts.append(("driver", f"for CUDA {driver // 1000}.{driver // 10 % 100}"))
    except RuntimeError:
        return [("cuda", "not available: no NVIDIA driver was found (libcuda.so.1); everything runs on the CPU")]
    if not _cuda["device_count"]():
        facts.append(("cuda", "not available: the driver shows no device (is CUDA_VISIBLE_DEVICES set?)"))
    for i in range(_cuda["device_count"]()):
        name, major, minor, processors, _, _, _, memory = _cuda["properties"](i)
        facts.append((f"cuda:{i}", f"{name}, {memory / 2**30:.0f} GiB, {processors} multiprocessors, sm_{major}{minor}"))
    missing = []
    for name, (purpose, package) in _LIBRARIES.items():
        found = _cuda["library"](name)
        if found is None:
            missing.append(package)
            facts.append((name, f"not found; {purpose} need{'' if purpose.endswith('s') else 's'} it: pip install {package}"))
        else:
            facts.append((name, f"{_version(name, found[1])} in {found[0]}"))
    if missing:
        facts.append(("to do", "pip install " + " ".join(missing)))
    folder = _cuda["cache_folder"]()
    kernels = [f for f in os.listdir(folder) if ".sm_" in f] if os.path.isdir(folder) else []
    facts.append(("kernels", f"{len(kernels)} compiled in {folder}"))
    return facts


def warm(architectures=None, threads=None, out=sys.stdout):
    """Compile the common kernels for the GPUs that are there, or for given architectures (90 is sm_90); returns how many were made."""
    import concurrent.futures

    if not architectures:
        architectures = sorted({10 * p[1] + p[2] for p in map(_cuda["properties"], range(_cuda["device_count"]()))})
    if not architectures:
        print("there is no GPU to compile for; name an architecture: wisp doctor --warm sm_90", file=out)
        return 0
    tasks = [(number, arch) for arch in architectures for number in range(len(_cuda["common_kernels"]()))]
    made = 0
    with concurrent.futures.ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for done, new in enumerate(pool.map(lambda task: _cuda["compile_common"](*task), tasks), 1):
            made += new
            if out.isatty():
                print(f"\r{done} of {len(tasks)} kernels", end="", file=out, flush=True)
    names = ", ".join(f"sm_{a}" for a in architectures)
    begin = "\r" if out.isatty() else ""
    print(f"{begin}{len(tasks)} kernels for {names} are ready, {made} of them new, in {_cuda['cache_folder']()}", file=out)
    return made
