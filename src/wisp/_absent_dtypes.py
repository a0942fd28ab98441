"""The dtypes that Wisp lacks: programs compare with them and keep them in tables; a tensor of one cannot be made."""


class AbsentDtype:
    """A dtype that no tensor has. It has a name, a size and a hash; operators refuse it."""

    def __init__(self, name, bits, is_floating_point=False, is_complex=False):
        self._name, self._bits = name, bits
        self.is_floating_point, self.is_complex = is_floating_point, is_complex
        self.is_signed = not name.startswith(("uint", "quint", "bits"))

    @property
    def itemsize(self):
        """The bytes of an element."""
        return max(1, self._bits // 8)

    def __repr__(self):
        return f"torch.{self._name}"

    def __reduce__(self):
        return _named, (self._name,)


DTYPES = {
    name: AbsentDtype(name, 8, True) for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
}
DTYPES["float4_e2m1fn_x2"] = AbsentDtype("float4_e2m1fn_x2", 8, True)
DTYPES["complex32"] = DTYPES["chalf"] = AbsentDtype("complex32", 32, False, True)
for _bits in range(1, 8):
    DTYPES[f"int{_bits}"], DTYPES[f"uint{_bits}"] = AbsentDtype(f"int{_bits}", _bits), AbsentDtype(f"uint{_bits}", _bits)
for _name, _bits in (
    ("qint8", 8),
    ("quint8", 8),
    ("qint32", 32),
    ("quint4x2", 8),
    ("quint2x4", 8),
    ("bits8", 8),
    ("bits16", 16),
    ("bits1x8", 8),
    ("bits2x4", 8),
    ("bits4x2", 8),
):
    DTYPES[_name] = AbsentDtype(_name, _bits)


def _named(name):
    return DTYPES[name]


def __getattr__(name):
    if name in DTYPES:
        return DTYPES[name]
    raise AttributeError(name)
