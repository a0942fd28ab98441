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
    return instructions(file, instances, arch)[0]


def instructions(file, instances, arch):
    """The same, and what was made of them, as text."""
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

    def text_of(size_of, write):
        size = ctypes.c_size_t()
        size_of(program, ctypes.byref(size))
        held = ctypes.create_string_buffer(max(1, size.value))
        write(program, held)
        return held.value.decode()

    log = text_of(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    made = text_of(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if result == 0 else ""
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return "" if result == 0 else log or f"NVRTC error {result}", made
