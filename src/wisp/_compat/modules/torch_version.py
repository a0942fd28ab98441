"""A version that programs compare with strings and tuples: `torch.__version__ >= (1, 8)`."""

import re

__all__ = ["TorchVersion"]


def _parts(value):
    if isinstance(value, str):
        return tuple(int(number) for number in re.findall(r"\d+", value.partition("+")[0]))
    if isinstance(value, (tuple, list)):
        return tuple(int(part) for part in value)
    return _parts(str(value))


class TorchVersion(str):
    """A string that is ordered as a version is.

    >>> from wisp.torch_version import TorchVersion
    >>> TorchVersion("2.13.0") > "2.9", TorchVersion("2.13.0+x") >= (2, 13)
    (True, True)
    """

    def _pair(self, other):
        mine, theirs = _parts(str(self)), _parts(other)
        length = max(len(mine), len(theirs))
        return mine + (0,) * (length - len(mine)), theirs + (0,) * (length - len(theirs))

    def __lt__(self, other):
        mine, theirs = self._pair(other)
        return mine < theirs

    def __le__(self, other):
        mine, theirs = self._pair(other)
        return mine <= theirs

    def __gt__(self, other):
        return not self <= other

    def __ge__(self, other):
        return not self < other

    def __eq__(self, other):
        if isinstance(other, str) and str.__eq__(self, other):
            return True
        try:
            mine, theirs = self._pair(other)
        except ValueError:
            return False
        return mine == theirs

    __hash__ = str.__hash__
