"""The classes of lazy views: `x.conj()` of a complex tensor shares its memory and shows the conjugate values, and so does `x.conj().imag`
with the negatives of the imaginary parts.

The core hands operators that are called with one to csrc/python/conjugate.cpp; here is what is no operator.
"""

from wisp import _core
from wisp._tensor import _disabled_torch_function_impl
from wisp._tensor.operators import by_name

Tensor = _core.Tensor


class _LazyView(Tensor):
    __torch_function__ = _disabled_torch_function_impl
    _turn = None  # from such a view to one that shows the memory as it is, and back
    _resolve = None  # the name of the method that computes its values

    T = property(lambda self: self.permute(*reversed(range(self.dim()))))
    mT = property(lambda self: self.transpose(-2, -1))
    mH = property(lambda self: self.adjoint())
    data = property(lambda self: self._turn(self._turn(self.detach()).data))  # with versions of its own

    def __getitem__(self, key):
        return self._turn(self._turn(self)[key])

    def __setitem__(self, key, value):
        self._turn(self)[key] = self._turn(_core.as_tensor(value, dtype=self.dtype))

    def numpy(self, *, force=False):
        """A copy of the values, if that is what is wanted: the memory has others."""
        if not force:
            raise RuntimeError(f"Can't call numpy() on Tensor that has {self._bit} bit set. Use tensor.{self._resolve}().numpy() instead.")
        return getattr(self, self._resolve)().numpy(force=True)

    def untyped_storage(self):
        """The memory itself, which views of it share."""
        return self._turn(self.detach()).untyped_storage()

    def storage(self):
        """The memory itself, as numbers of its dtype."""
        return self._turn(self.detach()).storage()

    def __dlpack__(self, **options):
        raise BufferError(f"Can't export tensors with the {self._bit} bit set; use tensor.{self._resolve}()")

    def __iter__(self):
        if self.dim() == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))


def _resolved(name):
    def method(self, *args, **kwargs):
        return getattr(getattr(self, self._resolve)(), name)(*args, **kwargs)

    method.__name__ = name
    return method


for _name in """
    item tolist __array__ __bool__ __float__ __int__ __index__ __complex__ __repr__ __format__ __deepcopy__ __reduce_ex__
    __contains__""".split():
    setattr(_LazyView, _name, _resolved(_name))
by_name(_LazyView)


class ConjugateView(_LazyView):
    """A complex tensor on the memory of another one, with the conjugates of its values.

    >>> import wisp
    >>> x = wisp.tensor([1 + 2j])
    >>> y = x.conj()
    >>> x.mul_(2), y, y.is_conj()
    (tensor([2.+4.j]), tensor([2.-4.j]), True)
    """

    _turn, _resolve, _bit = staticmethod(_core.conj), "resolve_conj", "conjugate"

    H = property(lambda self: self.conj() if self.dim() == 0 else _core.conj(self.t()))

    @property
    def real(self):
        """The real parts, which are those in memory."""
        return _core.real(self)

    @real.setter
    def real(self, value):
        self.conj().real = value

    @property
    def imag(self):
        """The imaginary parts: a view with the negatives of those in memory."""
        return _core._neg_view(self.conj().imag)

    @imag.setter
    def imag(self, value):
        self.imag.copy_(_core.as_tensor(value))


class NegativeView(_LazyView):
    """A real tensor on the memory of another one, with the negatives of its values.

    >>> import wisp
    >>> x = wisp.tensor([1 + 2j])
    >>> y = x.conj().imag
    >>> y.mul_(2), x, y.is_neg()
    (tensor([-4.]), tensor([1.+4.j]), True)
    """

    _turn, _resolve, _bit = staticmethod(_core._neg_view), "resolve_neg", "negative"

    H = property(lambda self: self if self.dim() == 0 else self.t())

    @property
    def real(self):
        """The tensor itself."""
        return self

    @real.setter
    def real(self, value):
        self.copy_(_core.as_tensor(value))


_core._set_lazy_types(ConjugateView, NegativeView)
