"""The legacy constructors of old code: Tensor(2, 3), FloatTensor([1, 2]), LongTensor(...)."""

import operator

from wisp import _core
from wisp._tensor import TYPE_NAMES


def new_tensor(*args, dtype=None, device=None, **kwargs):
    """What `Tensor(...)` makes: uninitialised memory of the sizes given, or the data given, in the default dtype; a tensor as it is."""
    data = kwargs.pop("data", None)
    if "size" in kwargs:
        args = (_core.Size(kwargs.pop("size")),)
    if device is not None and _core.device(device).type != "cpu":
        raise RuntimeError(f"legacy constructor expects device type: cpu but device type: {_core.device(device).type} was passed")
    if kwargs:
        raise TypeError(f"Tensor() got an unexpected keyword argument {next(iter(kwargs))!r}")
    if data is not None:
        args = (data,)
    if len(args) == 1 and isinstance(args[0], _core.Tensor):
        if dtype not in (None, args[0].dtype):
            raise TypeError(f"expected a tensor of {dtype}, got one of {args[0].dtype}; convert it with .to({dtype})")
        return args[0].as_subclass(_core.Tensor) if dtype is None else args[0].detach()
    dtype = dtype or _core.get_default_dtype()
    if not args:
        return _core.empty(0, dtype=dtype)
    if len(args) == 1 and not isinstance(args[0], int):
        value = args[0]
        if hasattr(value, "__index__"):  # a number of NumPy is a size, too
            try:
                return _core.empty(operator.index(value), dtype=dtype)
            except TypeError:
                pass  # an array of numbers
        if isinstance(value, _core.Size):
            return _core.empty(value, dtype=dtype)
        if hasattr(value, "_tensor_of"):  # a storage
            return value._tensor_of(dtype)
        if isinstance(value, float) or getattr(value, "ndim", 1) == 0:
            raise TypeError(f"new(): data must be a sequence (got {type(value).__name__})")
        return _core.tensor(value, dtype=dtype)
    return _core.empty(*args, dtype=dtype)


class _Legacy(type):
    def __new__(mcs, name, bases, members):
        if bases:
            raise TypeError(f"type 'torch.{bases[0].__name__}' is not an acceptable base type")
        return super().__new__(mcs, name, bases, members)

    def __instancecheck__(cls, value):
        return isinstance(value, _core.Tensor) and value.dtype == cls.dtype and value.is_cuda == cls.is_cuda

    def __call__(cls, *args, **kwargs):
        made = new_tensor(*args, dtype=cls.dtype, **kwargs)
        return made.cuda() if cls.is_cuda else made


def _make(name, dtype, cuda=False):
    doc = f"Tensors of {dtype} in the way of old programs: of the sizes given, uninitialised, or of the values given."
    return _Legacy(name, (), {"dtype": dtype, "__module__": "torch.cuda" if cuda else "torch", "is_cuda": cuda, "__doc__": doc})


_DTYPES = {name + "Tensor": dtype for dtype, name in TYPE_NAMES.items() if not dtype.is_complex}
TYPES = {name: _make(name, dtype) for name, dtype in _DTYPES.items()}
CUDA_TYPES = {name: _make(name, dtype, cuda=True) for name, dtype in _DTYPES.items()}
