"""finfo and iinfo: the limits of dtypes."""

import wisp

_FLOATING = {  # bits, digits after the point in base 2, largest exponent, decimal digits
    "float16": (16, 10, 15, 3),
    "bfloat16": (16, 7, 127, 2),
    "float32": (32, 23, 127, 6),
    "float64": (64, 52, 1023, 15),
    "complex32": (16, 10, 15, 3),
    "complex64": (32, 23, 127, 6),
    "complex128": (64, 52, 1023, 15),
}
_EIGHT_BITS = {  # eps, smallest, largest, smallest normal
    "float8_e4m3fn": (0.125, -448.0, 448.0, 2.0**-6),
    "float8_e5m2": (0.25, -57344.0, 57344.0, 2.0**-14),
    "float8_e4m3fnuz": (0.125, -240.0, 240.0, 2.0**-7),
    "float8_e5m2fnuz": (0.125, -57344.0, 57344.0, 2.0**-15),
    "float8_e8m0fnu": (1.0, 2.0**-127, 2.0**127, 2.0**-127),
}


class finfo:
    """The limits of a floating point dtype: bits, eps, max, min, tiny, smallest_normal, resolution."""

    def __init__(self, type=None):
        dtype = wisp.get_default_dtype() if type is None else type
        name = str(dtype).rsplit(".", 1)[-1]
        if name in _EIGHT_BITS:
            self.eps, self.min, self.max, self.tiny = _EIGHT_BITS[name]
            self.bits, self.resolution, self.smallest_normal, self.dtype = 8, 1.0, self.tiny, name
            return
        if name not in _FLOATING:
            raise TypeError("finfo() requires a floating point input type. Use iinfo to handle integer types")
        self.bits, digits, largest, decimals = _FLOATING[name]
        self.eps = 2.0**-digits
        self.max = (2 - self.eps) * 2.0**largest
        self.min = -self.max
        self.tiny = self.smallest_normal = 2.0 ** (1 - largest)
        self.resolution = 10.0**-decimals
        self.dtype = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}.get(name, name)

    def __eq__(self, other):
        return isinstance(other, finfo) and self.dtype == other.dtype

    def __hash__(self):
        return hash(self.dtype)

    def __repr__(self):
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:
    """The limits of an integer dtype: bits, max, min."""

    def __init__(self, type):
        name = str(type).rsplit(".", 1)[-1]
        if not isinstance(type, wisp.dtype) or type.is_floating_point or type.is_complex:
            raise TypeError("iinfo() requires an integer input type. Use finfo to handle floating point types")
        if name == "bool":
            raise TypeError(f'"bool" is not supported by iinfo: {type}')
        self.bits = 8 * type.itemsize
        signed = name.startswith("int")
        self.min = -(2 ** (self.bits - 1)) if signed else 0
        self.max = 2 ** (self.bits - signed) - 1
        self.dtype = name

    def __eq__(self, other):
        return isinstance(other, iinfo) and self.dtype == other.dtype

    def __hash__(self):
        return hash(self.dtype)

    def __repr__(self):
        return f"iinfo(min={float(self.min):g}, max={float(self.max):g}, dtype={self.dtype})"
