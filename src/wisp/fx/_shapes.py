"""What calls return, without data: computed on the device "meta", and by operators that cannot do that on zeros."""

import copy

import wisp
from wisp.fx.node import map_aggregate


def without_data(value):
    """A tensor of the same shape without data; anything else as it is."""
    if not isinstance(value, wisp.Tensor) or value.device.type == "meta":
        return value
    if value.layout != wisp.strided:
        return value.to("meta")
    return wisp.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _zeros(value):
    if isinstance(value, wisp.Tensor) and value.device.type == "meta":
        return wisp.zeros(value.shape, dtype=value.dtype, device="cpu")
    return value


class Shapes:
    """Calls functions, methods and modules on tensors without data."""

    def __init__(self):
        self._copies = {}

    def call(self, function, args, kwargs):
        """What the function returns."""
        try:
            with wisp.device("meta"):
                return function(*args, **kwargs)
        except NotImplementedError:  # an operator that needs data
            args, kwargs = map_aggregate((tuple(args), dict(kwargs)), _zeros)
            with wisp.no_grad(), wisp.device("cpu"), wisp.random.fork_rng(devices=[]):
                return map_aggregate(function(*args, **kwargs), without_data)

    def module(self, module, args, kwargs):
        """What the module returns; it stays as it is."""
        first, second = self._copies.get(module) or (None, None)
        if first is None:
            second = copy.deepcopy(module)
            first = copy.deepcopy(module).to("meta")
            self._copies[module] = first, second
        return self.call(lambda *a, **k: (first if _all_without_data((a, k)) else second)(*a, **k), args, kwargs)


def _all_without_data(values):
    found = []
    map_aggregate(values, lambda value: found.append(value.device.type == "meta") if isinstance(value, wisp.Tensor) else None)
    return all(found)
