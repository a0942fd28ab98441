"""The class of conjugate views: `x.conj()` of a complex tensor shares its memory and shows the conjugate values.

The core hands operators that are called with one to csrc/python/conjugate.cpp; here is what is no operator.
"""

from wisp import _core
from wisp._tensor import _disabled_torch_function_impl
from wisp._tensor.operators import by_name

Tensor = _core.Tensor


class ConjugateView(Tensor):
    """A complex tensor on the memory of another one, with the conjugates of its values.

    >>> import wisp
    >>> x = wisp.tensor([1 + 2j])
    >>> y = x.conj()
    >>> x.mul_(2), y, y.is_conj()
    (tensor([2.+4.j]), tensor([2.-4.j]), True)
    """

    __torch_function__ = _disabled_torch_function_impl

    T = property(lambda self: self.permute(*reversed(range(self.dim()))))
    mT = property(lambda self: self.transpose(-2, -1))
    H = property(lambda self: self.conj() if self.dim() == 0 else _core.conj(self.t()))
    mH = property(lambda self: self.adjoint())
    real = property(lambda self: _core.real(self))
    imag = property(lambda self: -self.conj().imag)
    data = property(lambda self: self.detach().conj().data.conj())  # with versions of its own

    def __getitem__(self, key):
        return self.conj()[key].conj()

    def __setitem__(self, key, value):
        self.conj()[key] = _core.as_tensor(value, dtype=self.dtype).conj()

    def numpy(self, *, force=False):
        """A copy of the values, if that is what is wanted: the memory has others."""
        if not force:
            raise RuntimeError("Can't call numpy() on Tensor that has conjugate bit set. Use tensor.resolve_conj().numpy() instead.")
        return self.resolve_conj().numpy(force=True)

    def __iter__(self):
        if self.dim() == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))


def _resolved(name):
    def method(self, *args, **kwargs):
        return getattr(self.resolve_conj(), name)(*args, **kwargs)

    method.__name__ = name
    return method


for _name in """
    item tolist __array__ __bool__ __float__ __int__ __index__ __complex__ __repr__ __format__ __deepcopy__ __reduce_ex__
    __contains__ __dlpack__""".split():
    setattr(ConjugateView, _name, _resolved(_name))
by_name(ConjugateView)
_core._set_conjugate_type(ConjugateView)
