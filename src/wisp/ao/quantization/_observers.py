"""What looks at values and chooses the scale and the zero point of their integers, and what rounds values in training as integers would."""

import collections
import functools

import wisp
from wisp import nn
from wisp._tensor.quantized import per_channel_affine, per_channel_symmetric, per_tensor_affine, per_tensor_symmetric

__all__ = [
    "FakeQuantize",
    "FakeQuantizeBase",
    "FixedQParamsFakeQuantize",
    "FixedQParamsObserver",
    "FusedMovingAvgObsFakeQuantize",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "QConfig",
    "RecordingObserver",
    "UniformQuantizationObserverBase",
    "get_default_qat_qconfig",
    "get_default_qconfig",
]
_SYMMETRIC, _OF_CHANNELS = (per_tensor_symmetric, per_channel_symmetric), (per_channel_affine, per_channel_symmetric)


class _Partial:
    """A class and some of its arguments: calling it makes one, `with_args` fixes more."""

    def __init__(self, made):
        self.p = made

    def __call__(self, *args, **kwargs):
        return self.p(*args, **kwargs)

    def with_args(self, **kwargs):
        """The same with more arguments."""
        return _Partial(functools.partial(self.p, **kwargs))

    def __repr__(self):
        return repr(self.p)


class _Made(nn.Module):
    @classmethod
    def with_args(cls, **kwargs):
        """Something that makes one with these arguments."""
        return _Partial(functools.partial(cls, **kwargs))

    with_callable_args = with_args


class ObserverBase(_Made):
    """What looks at values: `forward` returns them as they are, `calculate_qparams` gives what was found."""

    def __init__(self, dtype=None, is_dynamic=False):
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic


class UniformQuantizationObserverBase(ObserverBase):
    """One with equal steps between the numbers of an 8-bit integer."""

    def __init__(
        self, dtype=None, qscheme=per_tensor_affine, reduce_range=False, quant_min=None, quant_max=None, eps=2**-23, is_dynamic=False, **_
    ):
        super().__init__(wisp.quint8 if dtype is None else dtype, is_dynamic)
        self.qscheme, self.reduce_range, self.eps = qscheme, reduce_range, eps
        signed = str(self.dtype) in ("torch.qint8", "torch.int8")
        bits = 7 if reduce_range else 8
        if quant_min is None or quant_max is None:
            quant_min = -(2 ** (bits - 1)) if signed else 0
            self.quant_min, self.quant_max = quant_min, quant_min + 2**bits - 1
        else:
            self.quant_min, self.quant_max = (quant_min // 2, quant_max // 2) if reduce_range else (quant_min, quant_max)
        self.register_buffer("min_val", wisp.tensor(float("inf")))
        self.register_buffer("max_val", wisp.tensor(float("-inf")))

    def _calculate_qparams(self, low, high):
        if low.numel() == 0 or bool((low > high).any()):  # nothing was seen
            return wisp.ones(1), wisp.zeros(1, dtype=wisp.int32)
        low, high = low.clamp(max=0), high.clamp(min=0)  # 0 has an integer of its own
        steps = self.quant_max - self.quant_min
        if self.qscheme in _SYMMETRIC:
            scale = (wisp.maximum(-low, high) / (steps / 2)).clamp(min=self.eps)
            middle = 0 if str(self.dtype) in ("torch.qint8", "torch.int8") else (self.quant_min + self.quant_max + 1) // 2
            return scale, wisp.full_like(scale, middle, dtype=wisp.int32)
        scale = ((high - low) / steps).clamp(min=self.eps)
        return scale, (self.quant_min - (low / scale).round()).clamp(self.quant_min, self.quant_max).to(wisp.int32)

    def calculate_qparams(self):
        """The scale and the zero point, one each or one for each channel."""
        scale, zero_point = self._calculate_qparams(self.min_val, self.max_val)
        return scale.reshape(-1), zero_point.reshape(-1)

    def reset_min_max_vals(self):
        """Forget what was seen."""
        self.min_val, self.max_val = wisp.full_like(self.min_val, float("inf")), wisp.full_like(self.max_val, float("-inf"))

    def _see(self, low, high):
        self.min_val, self.max_val = wisp.minimum(low, self.min_val), wisp.maximum(high, self.max_val)

    def extra_repr(self):
        return f"min_val={self.min_val}, max_val={self.max_val}"


class MinMaxObserver(UniformQuantizationObserverBase):
    """The least and the greatest of all values.

    >>> import wisp
    >>> from wisp.ao.quantization import MinMaxObserver
    >>> seen = MinMaxObserver()
    >>> _ = seen(wisp.tensor([-1.0, 4.1]))
    >>> seen.calculate_qparams()
    (tensor([0.0200]), tensor([50], dtype=torch.int32))
    """

    def forward(self, x_orig):
        x = x_orig.detach()
        if x.numel():
            self._see(*wisp.aminmax(x.float()))
        return x_orig


class MovingAverageMinMaxObserver(MinMaxObserver):
    """The average of the least and of the greatest values of each call, the newest with weight `averaging_constant`."""

    def __init__(self, averaging_constant=0.01, dtype=None, **options):
        super().__init__(dtype=dtype, **options)
        self.averaging_constant = averaging_constant

    def _see(self, low, high):
        if bool((self.min_val > self.max_val).any()) or self.min_val.shape != low.shape:
            self.min_val, self.max_val = low, high
        else:
            self.min_val = self.min_val + self.averaging_constant * (low - self.min_val)
            self.max_val = self.max_val + self.averaging_constant * (high - self.max_val)


class _OfChannels:
    def __init__(self, ch_axis=0, dtype=None, qscheme=per_channel_affine, **options):
        super().__init__(dtype=dtype, qscheme=qscheme, **options)
        self.ch_axis = ch_axis

    def forward(self, x_orig):
        x = x_orig.detach().float()
        if x.numel():
            self._see(*wisp.aminmax(x.movedim(self.ch_axis, 0).flatten(1), dim=1))
        return x_orig

    def _load_from_state_dict(self, state, prefix, *args):
        for name in ("min_val", "max_val"):  # one for each channel, once values were seen
            if prefix + name in state:
                setattr(self, name, wisp.empty_like(state[prefix + name]))
        super()._load_from_state_dict(state, prefix, *args)


class PerChannelMinMaxObserver(_OfChannels, MinMaxObserver):
    """The least and the greatest values of each channel."""


class MovingAveragePerChannelMinMaxObserver(_OfChannels, MovingAverageMinMaxObserver):
    """Averages of the least and of the greatest values of each channel."""

    def __init__(self, averaging_constant=0.01, ch_axis=0, dtype=None, qscheme=per_channel_affine, **options):
        super().__init__(ch_axis, dtype, qscheme, averaging_constant=averaging_constant, **options)


class HistogramObserver(UniformQuantizationObserverBase):
    """A histogram of all values; far ends that few of them reach are cut where that makes the others more exact."""

    def __init__(self, bins=2048, dtype=None, **options):
        super().__init__(dtype=dtype, **options)
        self.bins = bins
        self.register_buffer("histogram", wisp.zeros(bins))

    def forward(self, x_orig):
        x = x_orig.detach().float().flatten()
        if not x.numel():
            return x_orig
        low, high = wisp.aminmax(x)
        counts, seen = wisp.zeros(self.bins), bool(self.min_val <= self.max_val)
        if seen:
            centers = self._centers()
            low, high = wisp.minimum(low, self.min_val), wisp.maximum(high, self.max_val)
            counts = counts.index_add(0, self._bins_of(centers, low, high), self.histogram)
        self.histogram = counts.index_add(0, self._bins_of(x, low, high), wisp.ones_like(x))
        self.min_val, self.max_val = low, high
        return x_orig

    def _bins_of(self, x, low, high):
        width = ((high - low) / self.bins).clamp(min=1e-30)
        return ((x - low) / width).long().clamp(0, self.bins - 1)

    def _centers(self):
        return self.min_val + (wisp.arange(self.bins) + 0.5) * (self.max_val - self.min_val) / self.bins

    def calculate_qparams(self):
        """The scale and the zero point with the least squared error: ends are cut by thousandths of the values in turn."""
        if bool(self.min_val > self.max_val):
            return super().calculate_qparams()
        centers, share = self._centers(), self.histogram.cumsum(0) / self.histogram.sum()
        cuts = [0.0, 1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2]
        best = None
        for below in cuts:
            for above in cuts:
                low = self.min_val if below == 0 else centers[int((share < below).sum())]
                high = self.max_val if above == 0 else centers[int((share <= 1 - above).sum().clamp(max=self.bins - 1))]
                scale, zero_point = self._calculate_qparams(low, high)
                steps = ((centers / scale).round() + zero_point).clamp(self.quant_min, self.quant_max)
                error = float((self.histogram * ((steps - zero_point) * scale - centers) ** 2).sum())
                if best is None or error < best[0]:
                    best = error, scale, zero_point
        return best[1].reshape(-1), best[2].reshape(-1)


class FixedQParamsObserver(ObserverBase):
    """A scale and a zero point that are given."""

    def __init__(self, scale, zero_point, dtype=None, qscheme=per_tensor_affine, quant_min=0, quant_max=255, is_dynamic=False, **options):
        super().__init__(wisp.quint8 if dtype is None else dtype, is_dynamic)
        self.qscheme, self.quant_min, self.quant_max = qscheme, quant_min, quant_max
        self.register_buffer("scale", wisp.tensor([float(scale)]))
        self.register_buffer("zero_point", wisp.tensor([int(zero_point)], dtype=wisp.int32))

    def forward(self, X):
        return X

    def calculate_qparams(self):
        """The scale and the zero point."""
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """One that only says the dtype."""

    def __init__(self, dtype=None, **options):
        super().__init__(wisp.float32 if dtype is None else dtype)

    def forward(self, x):
        return x


class NoopObserver(PlaceholderObserver):
    """One that looks at nothing."""


class RecordingObserver(ObserverBase):
    """One that keeps what it sees."""

    def __init__(self, dtype=None):
        super().__init__(wisp.quint8 if dtype is None else dtype)
        self.tensor_val = []

    def forward(self, x):
        self.tensor_val.append(x.clone())
        return x

    def get_tensor_value(self):
        """What was seen."""
        return self.tensor_val


class FakeQuantizeBase(_Made):
    """What rounds values as integers would, and can be switched off."""

    def __init__(self):
        super().__init__()
        self.register_buffer("fake_quant_enabled", wisp.tensor([1], dtype=wisp.uint8))
        self.register_buffer("observer_enabled", wisp.tensor([1], dtype=wisp.uint8))

    def enable_fake_quant(self, enabled=True):
        """Round from now on."""
        self.fake_quant_enabled[0] = int(enabled)

    def disable_fake_quant(self):
        """Pass values on as they are."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled=True):
        """Look at values from now on."""
        self.observer_enabled[0] = int(enabled)

    def disable_observer(self):
        """Keep the scale."""
        self.enable_observer(False)


class FakeQuantize(FakeQuantizeBase):
    """Rounds values to the integers that an observer chooses; gradients pass where values are within their range.

    >>> import wisp
    >>> from wisp.ao.quantization import FakeQuantize, MinMaxObserver
    >>> rounds = FakeQuantize(MinMaxObserver, quant_min=0, quant_max=3)
    >>> rounds(wisp.tensor([0.0, 1.2, 3.0]))
    tensor([0., 1., 3.])
    """

    def __init__(self, observer=MovingAverageMinMaxObserver, quant_min=None, quant_max=None, is_dynamic=False, **observer_kwargs):
        super().__init__()
        if quant_min is not None:
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        self.activation_post_process = seen = observer(**observer_kwargs)
        self.quant_min, self.quant_max, self.dtype, self.qscheme = seen.quant_min, seen.quant_max, seen.dtype, seen.qscheme
        self.ch_axis, self.is_dynamic = getattr(seen, "ch_axis", -1), is_dynamic
        self.register_buffer("scale", wisp.ones(1))
        self.register_buffer("zero_point", wisp.zeros(1, dtype=wisp.int32))

    def calculate_qparams(self):
        """The scale and the zero point that the observer finds."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, X):
        if self.observer_enabled[0]:
            self.activation_post_process(X)
            self.scale, self.zero_point = (found.to(X.device) for found in self.calculate_qparams())
        if not self.fake_quant_enabled[0]:
            return X
        if self.qscheme in _OF_CHANNELS:
            return wisp.fake_quantize_per_channel_affine(X, self.scale, self.zero_point, self.ch_axis, self.quant_min, self.quant_max)
        return wisp.fake_quantize_per_tensor_affine(X, self.scale, self.zero_point, self.quant_min, self.quant_max)

    def _load_from_state_dict(self, state, prefix, *args):
        for name in ("scale", "zero_point"):  # one for each channel, once values were seen
            if prefix + name in state:
                setattr(self, name, wisp.empty_like(state[prefix + name]))
        super()._load_from_state_dict(state, prefix, *args)

    def extra_repr(self):
        return f"quant_min={self.quant_min}, quant_max={self.quant_max}, scale={self.scale}, zero_point={self.zero_point}"


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """FakeQuantize; in PyTorch one kernel."""


class FixedQParamsFakeQuantize(FakeQuantize):
    """FakeQuantize with a scale that is given."""


class QConfig(collections.namedtuple("QConfig", ["activation", "weight"])):
    """What looks at the results of layers, and what at their weights: two things that make an observer."""

    def __new__(cls, activation=None, weight=None):
        for given in (activation, weight):
            if isinstance(given, nn.Module):
                raise ValueError("QConfig received observer instance, please pass observer class instead.")
        return super().__new__(cls, activation, weight)


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_weight_observer = MinMaxObserver.with_args(dtype=wisp.qint8, qscheme=per_tensor_symmetric)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(dtype=wisp.qint8, qscheme=per_channel_symmetric)
default_dynamic_quant_observer = PlaceholderObserver.with_args(dtype=wisp.quint8)
_OF_WEIGHTS = {"quant_min": -128, "quant_max": 127, "dtype": wisp.qint8}
default_fake_quant = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255)
default_weight_fake_quant = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, qscheme=per_tensor_symmetric, **_OF_WEIGHTS)
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, qscheme=per_channel_symmetric, ch_axis=0, **_OF_WEIGHTS
)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255)
default_fused_wt_fake_quant = default_weight_fake_quant
default_fused_per_channel_wt_fake_quant = default_per_channel_weight_fake_quant
default_qconfig = QConfig(default_observer, default_weight_observer)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_qat_qconfig = QConfig(default_fake_quant, default_weight_fake_quant)
default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
per_channel_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_per_channel_weight_observer)
float16_dynamic_qconfig = QConfig(PlaceholderObserver.with_args(dtype=wisp.float32), PlaceholderObserver.with_args(dtype=wisp.float16))


def _known(backend):
    if backend not in ("x86", "fbgemm", "onednn", "qnnpack"):
        raise AssertionError(f"backend: {backend} not supported. backend must be one of ['x86', 'fbgemm', 'onednn', 'qnnpack']")


def get_default_qconfig(backend="x86", version=0):
    """What quantization after training looks with: histograms of results, and for weights the extremes of each channel."""
    _known(backend)
    if backend == "qnnpack":
        return QConfig(HistogramObserver.with_args(reduce_range=False), default_weight_observer)
    return QConfig(HistogramObserver.with_args(reduce_range=backend != "onednn"), default_per_channel_weight_observer)


def get_default_qat_qconfig(backend="x86", version=1):
    """What training for quantization rounds with."""
    _known(backend)
    fake = FusedMovingAvgObsFakeQuantize.with_args(
        observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, reduce_range=backend in ("x86", "fbgemm")
    )
    return QConfig(fake, default_weight_fake_quant if backend == "qnnpack" else default_per_channel_weight_fake_quant)


def disable_observer(mod):
    """Keep the scale of this module, if it rounds: for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_observer()


def enable_observer(mod):
    """Look at values from now on, if the module rounds: for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_observer()


def disable_fake_quant(mod):
    """Stop to round, if the module does: for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_fake_quant()


def enable_fake_quant(mod):
    """Round from now on, if the module does: for `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_fake_quant()
