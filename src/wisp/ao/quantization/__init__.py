"""`torch.ao.quantization` without quantized tensors: weights in 8 bits (`quantize_dynamic`), layers folded together (`fuse_modules`),
and the stubs of models that are made for it. Static quantization needs integer kernels, which Wisp lacks; `convert` says so.
"""

import copy
import importlib

from wisp import nn
from wisp.ao.nn.quantized import dynamic as _dynamic
from wisp.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = [
    "DeQuantStub",
    "QConfig",
    "QuantStub",
    "QuantWrapper",
    "convert",
    "default_dynamic_qconfig",
    "default_qconfig",
    "fuse_modules",
    "get_default_qat_qconfig",
    "get_default_qconfig",
    "prepare",
    "prepare_qat",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
]
for _name in ("fuse_modules", "quantize"):  # modules of these names come before the functions, which stay
    importlib.import_module(f"{__name__}.{_name}")
_TEXT = (
    "Wisp has no integer kernels for activations: use quantize_dynamic, which keeps weights in 8 bits, or bfloat16 "
    "(model.to(torch.bfloat16))"
)


class QConfig:
    """What should be quantized, and how values are observed; remembered."""

    def __init__(self, activation=None, weight=None):
        self.activation, self.weight = activation, weight


default_qconfig, default_dynamic_qconfig = QConfig(), QConfig()
float16_dynamic_qconfig = per_channel_dynamic_qconfig = default_per_channel_qconfig = default_dynamic_qconfig


def get_default_qconfig(backend="x86", version=0):
    """A description of static quantization."""
    return QConfig()


get_default_qat_qconfig = get_default_qconfig


class ObserverBase(nn.Module):
    """What would look at values to choose their scale; programs compare with it."""


class UniformQuantizationObserverBase(ObserverBase):
    """One with equal steps."""


class AffineQuantizedObserverBase(ObserverBase):
    """One for blocks of values."""


class FakeQuantizeBase(nn.Module):
    """What would round values as quantization does; programs compare with it."""


class FakeQuantize(FakeQuantizeBase):
    """One by a scale."""


default_placeholder_observer = ObserverBase
QConfigAny = QConfig | None


def qconfig_equals(q1, q2):
    """Whether two descriptions are the same."""
    return q1 is q2 or (q1 is not None and q2 is not None and (q1.activation, q1.weight) == (q2.activation, q2.weight))


class QuantStub(nn.Module):
    """The place where a model begins to be quantized: passes its input on."""

    def __init__(self, qconfig=None):
        super().__init__()
        self.qconfig = qconfig

    def forward(self, x):
        return x


class DeQuantStub(QuantStub):
    """The place where a model ends to be quantized: passes its input on."""


class QuantWrapper(nn.Module):
    """A module between the two stubs."""

    def __init__(self, module):
        super().__init__()
        self.quant, self.dequant, self.module = QuantStub(), DeQuantStub(), module

    def forward(self, x):
        return self.dequant(self.module(self.quant(x)))


def fuse_modules(model, modules_to_fuse, inplace=False, **options):
    """Fold batch normalisations into the convolutions or linear layers before them, in evaluation mode; an activation stays.

    >>> import wisp
    >>> from wisp.ao.quantization import fuse_modules
    >>> model = wisp.nn.Sequential(wisp.nn.Conv2d(1, 1, 1), wisp.nn.BatchNorm2d(1)).eval()
    >>> fuse_modules(model, ["0", "1"])[1]
    Identity()
    """
    model = model if inplace else copy.deepcopy(model)
    for names in [modules_to_fuse] if isinstance(modules_to_fuse[0], str) else modules_to_fuse:
        layers = [model.get_submodule(name) for name in names]
        fold = fuse_linear_bn_eval if isinstance(layers[0], nn.Linear) else fuse_conv_bn_eval
        if len(layers) > 1 and isinstance(layers[1], nn.modules.batchnorm._BatchNorm) and not layers[0].training:
            _put(model, names[0], fold(layers[0], layers[1]))
            _put(model, names[1], nn.Identity())
    return model


fuse_modules_qat = fuse_modules


def _put(model, name, module):
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, module)


def quantize_dynamic(model, qconfig_spec=None, dtype=None, mapping=None, inplace=False):
    """The model in evaluation mode with the weights of its linear (and recurrent) layers in 8 bits.

    >>> import wisp
    >>> from wisp.ao.quantization import quantize_dynamic
    >>> quantize_dynamic(wisp.nn.Sequential(wisp.nn.Linear(4, 2)), {wisp.nn.Linear})[0]
    DynamicQuantizedLinear(in_features=4, out_features=2, dtype=torch.qint8)
    """
    if str(dtype) == "torch.float16":
        raise NotImplementedError("quantize_dynamic(dtype=torch.float16): use model.half() or model.to(torch.bfloat16)")
    model = (model if inplace else copy.deepcopy(model)).eval()
    wanted = set(qconfig_spec) if qconfig_spec else {nn.Linear, nn.LSTM, nn.GRU}

    def quantized(name, module):
        if type(module) not in wanted and name not in wanted:
            return None
        if isinstance(module, nn.Linear):
            return _dynamic.Linear.from_float(module)
        return _dynamic.LSTM.from_float(module) if isinstance(module, (nn.LSTM, nn.GRU, nn.RNN)) else None

    whole = quantized("", model)
    if whole is not None:
        return whole
    for name, module in list(model.named_modules()):
        new = quantized(name, module) if name else None
        if new is not None:
            _put(model, name, new)
    return model


def prepare(model, inplace=False, **options):
    """The model as it is: values are observed for `convert` alone."""
    return model if inplace else copy.deepcopy(model)


prepare_qat = prepare


def convert(module, mapping=None, inplace=False, **options):
    """Not available: raises NotImplementedError with what to do instead."""
    raise NotImplementedError(f"quantization.convert: {_TEXT}")


def quantize(model, run_fn, run_args, mapping=None, inplace=False):
    """Not available: raises NotImplementedError with what to do instead."""
    raise NotImplementedError(f"quantization.quantize: {_TEXT}")


quantize_qat = quantize


def disable_observer(mod):
    """Nothing to switch off."""


enable_observer = disable_fake_quant = enable_fake_quant = disable_observer
