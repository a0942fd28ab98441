"""Protocol Buffers, written by hand: a field is its number and kind, then its content. A message is its fields, one after the other."""

import struct

__all__ = ["double", "message", "packed", "single", "text", "varint"]


def _number(n):
    parts = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        parts.append(n & 127 | 128)
        n >>= 7
    parts.append(n)
    return bytes(parts)


def varint(field, n):
    """An integer, enumeration or boolean."""
    return _number(field << 3) + _number(int(n))


def varints(field, numbers):
    """Many integers in one field."""
    return message(field, b"".join(map(_number, map(int, numbers))))


def double(field, x):
    return _number(field << 3 | 1) + struct.pack("<d", x)


def single(field, x):
    """A 32-bit float; what does not fit is infinite."""
    try:
        return _number(field << 3 | 5) + struct.pack("<f", x)
    except OverflowError:
        return _number(field << 3 | 5) + struct.pack("<f", float("inf") if x > 0 else float("-inf"))


def message(field, content):
    """A message, or bytes."""
    return _number(field << 3 | 2) + _number(len(content)) + content


def text(field, string):
    return message(field, str(string).encode())


def packed(field, numbers, kind="d"):
    """Many floats: kind "d" or "f"."""
    return message(field, struct.pack(f"<{len(numbers)}{kind}", *numbers))
