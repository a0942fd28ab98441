"""PyTorch's C++ extensions: they are built against PyTorch's own library, and so do not load into Wisp."""

__all__ = ["BuildExtension", "CUDAExtension", "CUDA_HOME", "CppExtension", "load", "load_inline"]
CUDA_HOME = ROCM_HOME = None
_TEXT = "PyTorch's C++ extensions do not load into Wisp: write the operator in Python as a wisp.autograd.Function"


def _no(name):
    def function(*args, **kwargs):
        raise NotImplementedError(f"utils.cpp_extension.{name}: {_TEXT}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Not available: raises NotImplementedError."
    return function


load, load_inline, CppExtension, CUDAExtension, BuildExtension = map(
    _no, ("load", "load_inline", "CppExtension", "CUDAExtension", "BuildExtension")
)
