"""What all transforms share: a random choice is made once (`params`), then applied (`apply`)."""

import wisp
from wisp.vision.transforms import functional


class Transform(wisp.nn.Module):
    """A transform of an image. `params(img)` makes the random choices, `apply(img, *choices)` does the work."""

    _f = functional
    _shown = ()

    def params(self, img):
        return ()

    def apply(self, img, *params):
        raise NotImplementedError

    def forward(self, img):
        return self.apply(img, *self.params(img))

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)}' for name in self._shown)})"


class Maybe(Transform):
    """A transform that is done with the probability `p`."""

    _shown = ("p",)

    def __init__(self, p=0.5):
        super().__init__()
        self.p = p

    def params(self, img):
        return (bool(wisp.rand(1) < self.p),)

    def apply(self, img, chosen):
        return self.change(img) if chosen else img


def uniform(low, high):
    """A random number."""
    return float(wisp.empty(1).uniform_(float(low), float(high)))


def integer(high):
    """A random integer from 0 to high - 1."""
    return int(wisp.randint(0, high, (1,)))


def span(value, name, center=0.0, bound=(-float("inf"), float("inf")), positive=True):
    """A range from one number (about the centre) or two."""
    if isinstance(value, (int, float)):
        if value < 0 and positive:
            raise ValueError(f"If {name} is a single number, it must be non negative.")
        return [center - value, center + value]
    value = [float(part) for part in value]
    if len(value) != 2 or not bound[0] <= value[0] <= value[1] <= bound[1]:
        raise ValueError(f"{name} values should be between {bound}, but got {value}.")
    return value
