"""`torch.quasirandom`: Sobol sequences, with the direction numbers of SciPy where it is installed."""

import wisp

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points that fill the unit cube evenly.

    Needs SciPy, which holds the table of direction numbers.
    """

    MAXBIT, MAXDIM = 30, 21201

    def __init__(self, dimension, scramble=False, seed=None):
        if dimension < 1 or dimension > self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], got {dimension}")
        try:
            from scipy.stats import qmc
        except ImportError:
            raise ImportError("SobolEngine takes its direction numbers from SciPy, which is not installed: pip install scipy") from None
        self.dimension, self.scramble, self.seed, self.num_generated = dimension, scramble, seed, 0
        if scramble and seed is None:
            seed = int(wisp.randint(0, 2**31 - 1, ()))
        self._sobol = qmc.Sobol(dimension, scramble=scramble, seed=seed)

    def draw(self, n=1, out=None, dtype=None):
        """The next n points."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            points = wisp.from_numpy(self._sobol.random(n)).to(dtype or wisp.get_default_dtype())
        self.num_generated += n
        return points if out is None else out.resize_as_(points).copy_(points)

    def draw_base2(self, m, out=None, dtype=None):
        """The next 2**m points."""
        return self.draw(2**m, out, dtype)

    def reset(self):
        """Begin again."""
        self._sobol.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n):
        """Leave n points out."""
        self._sobol.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self):
        text = [f"dimension={self.dimension}"] + ["scramble=True"] * self.scramble
        text += [] if self.seed is None else [f"seed={self.seed}"]
        return f"SobolEngine({', '.join(text)})"
