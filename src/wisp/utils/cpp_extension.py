"""Kernels of your own in C++ and CUDA, compiled when they are loaded.

    >>> from wisp.utils.cpp_extension import load_inline
    >>> source = '''
    ... void scale(const Tensor& x, Tensor& out, double by) {
    ...     const float* from = x.data<float>();
    ...     float* to = out.data<float>();
    ...     for (int64_t i = 0; i < x.numel(); i++) to[i] = from[i] * by;
    ... }
    ... '''
    >>> kernels = load_inline("mine", source, functions=["scale"])  # doctest: +SKIP

A kernel gets tensors as memory, sizes and strides (`extension.h` beside this file) and fills those that it is given; who calls it
allocates them, checks shapes, and gives it a gradient with `autograd.Function` or `library.custom_op`. Extensions written for PyTorch's
own C++ library do not load here.
"""

import ctypes
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import wisp
from wisp import _core

__all__ = ["BuildExtension", "CUDAExtension", "CppExtension", "load", "load_inline"]
CUDA_HOME = ROCM_HOME = None

_NUMBERS = {"double": "double", "float": "double", "int64_t": "int64", "int": "int64", "int32_t": "int64", "long": "int64", "bool": "int64"}
_REFUSED = "{}: extensions for PyTorch's C++ library do not load into Wisp; write kernels as wisp.utils.cpp_extension tells"
_CUDA_TYPES = {
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "int64_t": ctypes.c_int64,
    "long long": ctypes.c_int64,
    "int": ctypes.c_int32,
    "int32_t": ctypes.c_int32,
    "unsigned": ctypes.c_uint32,
    "bool": ctypes.c_bool,
}
_POINTED = {
    "double": "float64",
    "float": "float32",
    "int64_t": "int64",
    "long long": "int64",
    "int": "int32",
    "int32_t": "int32",
    "int16_t": "int16",
    "short": "int16",
    "int8_t": "int8",
    "uint8_t": "uint8",
    "unsigned char": "uint8",
    "bool": "bool",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
}


class CppExtension:
    """Not available: raises NotImplementedError."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError(_REFUSED.format(type(self).__name__))


class CUDAExtension(CppExtension):
    """Not available: raises NotImplementedError."""


class BuildExtension(CppExtension):
    """Not available: raises NotImplementedError."""


def load(name, sources, functions=None, **options):
    """Compile files of C++ (.cpp) and CUDA (.cu) and load their kernels: `load_inline` for what stands in files."""
    texts = {"cpp": [], "cuda": []}
    for path in [sources] if isinstance(sources, (str, os.PathLike)) else sources:
        texts["cuda" if str(path).endswith((".cu", ".cuh")) else "cpp"].append(pathlib.Path(path).read_text(encoding="utf-8"))
    return load_inline(name, texts["cpp"], texts["cuda"], functions, **options)


def load_inline(
    name,
    cpp_sources="",
    cuda_sources="",
    functions=None,
    extra_cflags=(),
    extra_cuda_cflags=(),
    extra_ldflags=(),
    extra_include_paths=(),
    build_directory=None,
    verbose=False,
):
    """Compile kernels that are given as text, and load them: an object with a function for each name of `functions`.

    A C++ function takes `Tensor&` (written) or `const Tensor&` (read), numbers and bools, and returns nothing or a number. A `__global__`
    function of CUDA takes pointers and numbers, and is launched with `kernels.name[grid, block](...)` on the current stream. What was
    compiled before is found again by its text.
    """
    cpp, cuda = _joined(cpp_sources), _joined(cuda_sources)
    if re.search(r"torch/extension\.h|\btorch::|\bat::Tensor", cpp + cuda):
        raise NotImplementedError(_REFUSED.format(f"load_inline({name!r})"))
    functions = [functions] if isinstance(functions, str) else list(functions or ())
    made = Extension(name)
    launched = [function for function in functions if re.search(rf"__global__[^;{{(]*\b{function}\s*\(", cuda)]
    called = [function for function in functions if function not in launched]
    if called or (cpp.strip() and not functions):
        signatures = {function: _parameters(cpp, function, r"(void|double|float|int64_t|int|bool)\s+") for function in called}
        flags = [*extra_cflags, *(f"-I{path}" for path in extra_include_paths)]
        source = cpp + "".join(_shim(function, *signature) for function, signature in signatures.items())
        library = _compiled(name, source, flags, extra_ldflags, build_directory, verbose)
        for function, (result, parameters) in signatures.items():
            setattr(made, function, Kernel(library, function, result, parameters))
    if launched:
        flags = [*extra_cuda_cflags, *(f"-I{path}" for path in extra_include_paths)]
        program = _Program(name, cuda, launched, flags)
        for function in launched:
            setattr(made, function, CudaKernel(program, function, _parameters(cuda, function, r"(void)\s+")[1]))
    return made


def _joined(sources):
    return sources if isinstance(sources, str) else "\n".join(sources or ())


class Extension:
    """What `load_inline` gives: kernels as attributes."""

    def __init__(self, name):
        self.__name__ = name

    def __repr__(self):
        return f"Extension({self.__name__!r}: {', '.join(name for name in vars(self) if not name.startswith('_'))})"


def _parameters(source, function, results):
    """-> the type of the result, [(type, name)] of a function in a source."""
    found = re.search(rf"{results}{function}\s*\(([^)]*)\)", re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.S))
    if found is None:
        raise ValueError(f"load_inline: {function} is not defined in the source as a function that returns nothing or a number")
    parameters = []
    for text in filter(None, (part.strip() for part in found[2].split(","))):
        match = re.fullmatch(r"(.*?[\s&*])\s*(\w+)", text)
        if match is None:
            raise ValueError(f"load_inline: {function}: {text!r} is no parameter with a type and a name")
        parameters.append((" ".join(re.sub(r"([&*])", r" \1", match[1].replace("__restrict__", "")).split()), match[2]))
    return found[1], parameters


def _readable(tensor, where, name, device, written):
    """The checks of an argument; a tensor that is written is marked as changed, for autograd."""
    if not isinstance(tensor, wisp.Tensor):
        raise TypeError(f"{where}: {name} must be a Tensor, got {type(tensor).__name__}")
    if tensor.device.type != device or tensor.layout != wisp.strided or tensor.is_conj():
        raise ValueError(f"{where}: {name} must be an ordinary tensor on {device}, this one is on {tensor.device} ({tensor.layout})")
    if tensor.requires_grad and wisp.is_grad_enabled():
        raise RuntimeError(
            f"{where}: {name} requires grad, which a kernel knows nothing of: call it in the forward of an autograd.Function"
        )
    if written:
        wisp.autograd.graph.increment_version(tensor)


# --- C++


class _View(ctypes.Structure):
    """`wisp::Tensor` of extension.h."""

    _fields_ = [
        ("memory", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("dimensions", ctypes.c_int64),
        ("dtype", ctypes.c_char_p),
    ]


def _is_tensor(kind):
    return kind in ("Tensor", "Tensor &", "const Tensor &", "const Tensor", "wisp::Tensor &", "const wisp::Tensor &")


def _shim(function, result, parameters):
    """A function with one signature for all kernels: tensors, floats and integers in three lists; a text if there was an error."""
    counts, words = {"tensor": 0, "double": 0, "int64": 0}, []
    for kind, name in parameters:
        plain = kind.removeprefix("const ")
        if not _is_tensor(kind) and plain not in _NUMBERS:
            raise TypeError(f"load_inline: {function}: {name} is of type {kind}; expected Tensor, const Tensor&, {', '.join(_NUMBERS)}")
        which = "tensor" if _is_tensor(kind) else _NUMBERS[plain]
        words.append(f"{which}s[{counts[which]}]" if which != "int64" else f"({plain})int64s[{counts[which]}]")
        counts[which] += 1
    call = f"{function}({', '.join(words)})"
    call = f"{call};" if result == "void" else f"*{_NUMBERS[result]}_result = {call};"
    return f"""
extern "C" const char* wisp_call_{function}(wisp::Tensor* tensors, const double* doubles, const int64_t* int64s, double* double_result,
                                            int64_t* int64_result) {{
    static thread_local std::string error;
    try {{
        {call}
        return nullptr;
    }} catch (const std::exception& e) {{
        error = e.what();
        return error.c_str();
    }}
}}
"""


def _compiled(name, source, flags, link, folder, verbose):
    """The shared library of a source, compiled or found from before."""
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        raise RuntimeError("load_inline: no C++ compiler was found (c++, g++, clang++); install one, or name it in the variable CXX")
    header = pathlib.Path(__file__).with_name("extension.h")
    command = [*compiler.split(), "-std=c++20", "-O3", "-march=native", "-fPIC", "-shared", "-include", str(header), *flags]
    key = hashlib.sha256("\0".join([source, header.read_text(), *command, *link]).encode()).hexdigest()[:16]
    folder = pathlib.Path(folder or os.environ.get("WISP_EXTENSIONS") or pathlib.Path.home() / ".cache" / "wisp" / "extensions")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{key}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            (pathlib.Path(work) / f"{name}.cpp").write_text(source, encoding="utf-8")
            command += [f"{work}/{name}.cpp", "-o", f"{work}/{name}.so", *link]
            if verbose:
                print(" ".join(command))
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"load_inline({name!r}): the compiler found errors\n{done.stderr}")
            os.replace(f"{work}/{name}.so", path)  # whole or not at all
    return ctypes.CDLL(str(path))


class Kernel:
    """A function of C++: called with tensors and numbers, without the interpreter's lock."""

    def __init__(self, library, name, result, parameters):
        self.__name__, self._library, self._result, self._parameters = name, library, result, parameters
        self._call = getattr(library, f"wisp_call_{name}")
        self._call.restype = ctypes.c_char_p

    def __call__(self, *args):
        if len(args) != len(self._parameters):
            raise TypeError(f"{self.__name__}() takes {len(self._parameters)} arguments ({len(args)} given)")
        tensors, doubles, integers, kept = [], [], [], []
        for (kind, name), value in zip(self._parameters, args):
            if _is_tensor(kind):
                _readable(value, f"{self.__name__}()", name, "cpu", not kind.startswith("const"))
                shape = (ctypes.c_int64 * value.dim())(*value.shape), (ctypes.c_int64 * value.dim())(*value.stride())
                kept.append(shape)
                tensors.append(_View(value.data_ptr(), *shape, value.dim(), str(value.dtype).rpartition(".")[2].encode()))
            elif _NUMBERS[kind.removeprefix("const ")] == "double":
                doubles.append(float(value))
            else:
                integers.append(int(value))
        number, integer = ctypes.c_double(), ctypes.c_int64()
        error = self._call(
            (_View * len(tensors))(*tensors),
            (ctypes.c_double * len(doubles))(*doubles),
            (ctypes.c_int64 * len(integers))(*integers),
            ctypes.byref(number),
            ctypes.byref(integer),
        )
        if error is not None:
            raise RuntimeError(f"{self.__name__}(): {error.decode()}")
        if self._result == "void":
            return None
        return number.value if _NUMBERS[self._result] == "double" else bool(integer.value) if self._result == "bool" else integer.value

    def __repr__(self):
        return f"<kernel {self._result} {self.__name__}({', '.join(f'{kind} {name}' for kind, name in self._parameters)})>"


# --- CUDA


class _Program:
    """A source of CUDA, compiled by NVRTC for the architecture of a device when it is first launched there."""

    def __init__(self, name, source, functions, flags):
        for function in functions:  # without C++'s names for overloads
            source = re.sub(rf'(?<!extern "C" )(__global__[^;{{(]*\b{function}\s*\()', r'extern "C" \1', source)
        self.name, self.source, self.flags = name, "typedef long long int64_t;\ntypedef int int32_t;\n" + source, list(flags)
        self.modules = {}

    def image(self, architecture):
        """The machine code for an architecture: 90 is sm_90."""
        found = _core._operators["_cuda"]["library"]("nvrtc")
        if found is None:
            raise RuntimeError("load_inline: NVRTC was not found, which compiles kernels: pip install nvidia-cuda-nvrtc")
        path = next(iter(sorted(pathlib.Path(found[0]).glob("libnvrtc.so.1*"))), None) if os.path.isdir(found[0]) else found[0]
        nvrtc = ctypes.CDLL(str(path))
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), self.source.encode(), f"{self.name}.cu".encode(), 0, None, None)
        options = [f"--gpu-architecture=sm_{architecture}", "--std=c++17", *self.flags]
        failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*(o.encode() for o in options)))
        if failed:
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"load_inline({self.name!r}): {nvrtc.nvrtcGetErrorString(failed).decode()}\n{log.value.decode()}")
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, image)
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return image

    def function(self, name, device):
        """The kernel, loaded on a device."""
        driver = ctypes.CDLL("libcuda.so.1")
        if device not in self.modules:
            major, minor = wisp.cuda.get_device_capability(device)
            module = ctypes.c_void_p()
            _checked(driver, driver.cuModuleLoadData(ctypes.byref(module), self.image(10 * major + minor)), "cuModuleLoadData")
            self.modules[device] = module
        found = ctypes.c_void_p()
        _checked(driver, driver.cuModuleGetFunction(ctypes.byref(found), self.modules[device], name.encode()), "cuModuleGetFunction")
        return driver, found


def _checked(driver, result, what):
    if result:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(result, ctypes.byref(text))
        raise RuntimeError(f"{what}: {(text.value or b'unknown error').decode()}")


class CudaKernel:
    """A `__global__` function: `kernel[grid, block](...)` or `kernel[grid, block, bytes of shared memory](...)` launches it."""

    def __init__(self, program, name, parameters):
        self.__name__, self._program, self._parameters, self._functions = name, program, parameters, {}
        for kind, parameter in parameters:
            plain = kind.removeprefix("const ")
            if not (plain.endswith(" *") and plain[:-2] in _POINTED or plain in _CUDA_TYPES):
                raise TypeError(f"load_inline: {name}: {parameter} is of type {kind}; expected pointers and numbers")

    def __getitem__(self, launch):
        if not isinstance(launch, tuple) or len(launch) not in (2, 3):
            raise TypeError(f"{self.__name__}[grid, block] or [grid, block, bytes of shared memory] launches it")
        sizes = [(*((n,) if isinstance(n, int) else tuple(n)), 1, 1)[:3] for n in launch[:2]]
        return lambda *args: self._launch(sizes, launch[2] if len(launch) == 3 else 0, args)

    def _launch(self, sizes, shared, args):
        where = f"{self.__name__}()"
        if len(args) != len(self._parameters):
            raise TypeError(f"{where} takes {len(self._parameters)} arguments ({len(args)} given)")
        values, device = [], None
        for (kind, name), value in zip(self._parameters, args):
            plain = kind.removeprefix("const ")
            if not plain.endswith("*"):
                values.append(_CUDA_TYPES[plain](value))
                continue
            _readable(value, where, name, "cuda", not kind.startswith("const"))
            if str(value.dtype).rpartition(".")[2] != _POINTED[plain[:-2]]:
                raise TypeError(f"{where}: {name} must be of {_POINTED[plain[:-2]]}, this one is of {value.dtype}")
            if device is not None and value.device.index != device:
                raise ValueError(f"{where}: tensors are on cuda:{device} and {value.device}")
            device = value.device.index
            values.append(ctypes.c_void_p(value.data_ptr()))
        device = wisp.cuda.current_device() if device is None else device
        with wisp.cuda.device(device):
            if device not in self._functions:
                self._functions[device] = self._program.function(self.__name__, device)
            driver, function = self._functions[device]
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
            stream = ctypes.c_void_p(wisp.cuda.current_stream(device).cuda_stream)
            _checked(driver, driver.cuLaunchKernel(function, *sizes[0], *sizes[1], int(shared), stream, pointers, None), where)

    def __repr__(self):
        return f"<kernel {self.__name__}({', '.join(f'{kind} {name}' for kind, name in self._parameters)}) for CUDA>"
