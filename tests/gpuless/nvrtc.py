"""NVRTC without a GPU: compiles many instances of the kernels in a file at once, for a given architecture."""

import ctypes
import glob
import os

CSRC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "csrc")


def library():
    """The compiler of the wheel nvidia-cuda-nvrtc, with its second library opened first: it would not find it itself."""
    import nvidia

    for root in nvidia.__path__:
        for compiler in glob.glob(os.path.join(root, "*", "lib", "libnvrtc.so.*")):
            for part in glob.glob(os.path.join(os.path.dirname(compiler), "libnvrtc-builtins.so.*")):
                ctypes.CDLL(part, ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(compiler)
    raise ImportError("the wheel nvidia-cuda-nvrtc holds no libnvrtc")


def compile(file, instances, arch):
    """Compiles `instances` of the kernels in `file` (a path below csrc/) for sm_`arch`: the compiler's log, empty if all is well."""
    nvrtc = library()
    program = ctypes.c_void_p()
    text, names = f'#include "{file}"\n', []
    for i, instance in enumerate(instances):
        if instance.startswith("/*"):  # the text of a fused program
            text += instance.replace("program(", f"program_{i}(") + "\n"
            instance = f"wisp::program_{i}"
        names.append(instance)
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None) == 0
    for instance in names:
        assert nvrtc.nvrtcAddNameExpression(program, instance.encode()) == 0
    options = [f"--gpu-architecture=sm_{arch}", "--std=c++20", "-default-device", "--diag-suppress=177,550", f"--include-path={CSRC}"]
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    result = nvrtc.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return "" if result == 0 else log.value.decode() or f"NVRTC error {result}"
