"""The dtypes that Wisp lacks: programs compare with them and keep them in tables; a tensor of one cannot be made."""

from wisp._compat import ABSENT_DTYPES


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


DTYPES = {name: AbsentDtype(name, bits, name.startswith("float"), name.startswith("complex")) for name, bits in ABSENT_DTYPES.items()}
DTYPES["chalf"], DTYPES["bit"] = DTYPES["complex32"], DTYPES["uint1"]


def _named(name):
    return DTYPES[name]


def __getattr__(name):
    if name in DTYPES:
        return DTYPES[name]
    raise AttributeError(name)
