"""The dtypes that Wisp lacks: programs compare with them and keep them in tables; a tensor of one cannot be made."""

from wisp._compat import ABSENT_DTYPES


class AbsentDtype:
    """A dtype that no tensor has. It has a name, a size and a hash; operators refuse it."""

    is_complex = False

    def __init__(self, name, bits, is_floating_point=False):
        self._name, self._bits, self.is_floating_point = name, bits, is_floating_point
        self.is_signed = not name.startswith(("uint", "quint", "bits"))

    @property
    def abbr(self):
        """The name in short, as PyTorch's: b4x2, f4e2m1fnx2."""
        if self._name.startswith("bits"):
            return self._name.replace("bits", "b") + "x1" * ("x" not in self._name)
        return self._name.replace("float", "f").replace("_", "")

    @property
    def itemsize(self):
        """The bytes of an element."""
        return max(1, self._bits // 8)

    def __repr__(self):
        return f"torch.{self._name}"

    def __reduce__(self):
        return _named, (self._name,)


DTYPES = {name: AbsentDtype(name, bits, name.startswith("float")) for name, bits in ABSENT_DTYPES.items()}
DTYPES["bit"] = DTYPES["uint1"]


def _named(name):
    return DTYPES[name]


def __getattr__(name):
    if name in DTYPES:
        return DTYPES[name]
    raise AttributeError(name)
