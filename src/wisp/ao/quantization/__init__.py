"""`torch.ao.quantization`: weights in 8 bits (`quantize_dynamic`), layers joined (`fuse_modules`), and whole models in 8-bit integers:
`prepare` looks at values, `prepare_qat` trains with values rounded, `convert` makes the layers that compute with integers' values.
"""

import copy
import importlib
import warnings

import wisp
from wisp import nn
from wisp.ao.nn import intrinsic as _intrinsic
from wisp.ao.nn import qat as _qat
from wisp.ao.nn import quantized as _quantized
from wisp.ao.nn.quantized import dynamic as _dynamic
from wisp.ao.quantization import _observers
from wisp.ao.quantization._observers import *  # noqa: F403
from wisp.ao.quantization._observers import default_dynamic_qconfig, default_qconfig  # noqa: F401
from wisp.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = [
    *_observers.__all__,
    "DeQuantStub",
    "QuantStub",
    "QuantWrapper",
    "convert",
    "default_dynamic_qconfig",
    "default_qconfig",
    "fuse_modules",
    "fuse_modules_qat",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
]
for _name in ("fuse_modules", "quantize"):  # modules of these names come before the functions, which stay
    importlib.import_module(f"{__name__}.{_name}")
globals().update(
    {name: value for name, value in vars(_observers).items() if name.startswith(("default", "disable", "enable", "per_ch", "float16"))}
)
QConfigAny = _observers.QConfig | None


class AffineQuantizedObserverBase(_observers.ObserverBase):
    """One for blocks of values; programs compare with it."""


def qconfig_equals(q1, q2):
    """Whether two descriptions are the same."""
    return q1 is q2 or (q1 is not None and q2 is not None and tuple(q1) == tuple(q2))


class QuantStub(nn.Module):
    """The place where a model begins to be quantized: passes its input on."""

    def __init__(self, qconfig=None):
        super().__init__()
        if qconfig is not None:
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
        if hasattr(module, "qconfig"):
            self.qconfig = module.qconfig
        self.train(module.training)

    def forward(self, x):
        return self.dequant(self.module(self.quant(x)))


def _joined(layers, training):
    """One module for layers that follow each other."""
    first, rest = layers[0], list(layers[1:])
    normal = isinstance(rest[0] if rest else None, nn.modules.batchnorm._BatchNorm)
    if training and normal:
        name = "LinearBn1d" if isinstance(first, nn.Linear) else f"ConvBn{'ReLU' if len(rest) > 1 else ''}{first.weight.dim() - 2}d"
        return getattr(_intrinsic, name)(*layers)
    if normal:
        first = (fuse_linear_bn_eval if isinstance(first, nn.Linear) else fuse_conv_bn_eval)(first, rest.pop(0))
    if not rest:
        return first
    if isinstance(first, nn.modules.batchnorm._BatchNorm):
        name = f"BNReLU{3 if isinstance(first, nn.BatchNorm3d) else 2}d"
    else:
        name = "LinearReLU" if isinstance(first, nn.Linear) else f"ConvReLU{first.weight.dim() - 2}d"
    return getattr(_intrinsic, name)(first, *rest).train(first.training)


def _fuse(model, modules_to_fuse, inplace, training):
    model = model if inplace else copy.deepcopy(model)
    for names in [modules_to_fuse] if isinstance(modules_to_fuse[0], str) else modules_to_fuse:
        layers = [model.get_submodule(name) for name in names]
        kinds = (nn.Linear, nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm)
        after = (nn.ReLU, nn.modules.batchnorm._BatchNorm)
        if not isinstance(layers[0], kinds) or not all(isinstance(layer, after) for layer in layers[1:]):
            raise NotImplementedError(
                f"fuse_modules: cannot join {', '.join(type(layer).__name__ for layer in layers)}; a convolution or linear layer, its "
                "BatchNorm and its ReLU, or some of these in this order, can be"
            )
        _put(model, names[0], _joined(layers, training))
        for name in names[1:]:
            _put(model, name, nn.Identity())
    return model


def fuse_modules(model, modules_to_fuse, inplace=False, **options):
    """Fold batch normalisations into the convolutions or linear layers before them, in evaluation mode, and join a ReLU behind.

    >>> import wisp
    >>> from wisp.ao.quantization import fuse_modules
    >>> model = wisp.nn.Sequential(wisp.nn.Conv2d(1, 1, 1), wisp.nn.BatchNorm2d(1)).eval()
    >>> fuse_modules(model, ["0", "1"])[1]
    Identity()
    """
    return _fuse(model, modules_to_fuse, inplace, False)


def fuse_modules_qat(model, modules_to_fuse, inplace=False, **options):
    """Join layers for `prepare_qat`, in training mode: normalisations go on to be trained."""
    return _fuse(model, modules_to_fuse, inplace, True)


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


# layers whose results get a scale of their own; others, such as pooling, keep that of their input
_OBSERVED = (
    QuantStub,
    _intrinsic._FusedModule,
    _quantized.FloatFunctional,
    nn.Linear,
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    *(nn.LayerNorm, nn.GroupNorm, nn.Hardswish, nn.ELU, nn.LeakyReLU, nn.PReLU, nn.Softmax, nn.GELU, nn.SiLU),
)


def propagate_qconfig_(module, qconfig_dict=None, prepare_custom_config_dict=None):
    """Give modules inside the `qconfig` of the module around them, unless they have their own (None: not quantized)."""
    given = getattr(module, "qconfig", (qconfig_dict or {}).get(""))
    module.qconfig = given
    for name, child in module.named_children():
        if not hasattr(child, "qconfig"):
            child.qconfig = (qconfig_dict or {}).get(name, (qconfig_dict or {}).get(type(child), given))
        propagate_qconfig_(child)


def _observe(module, args, output):
    return module.activation_post_process(output)


def _watch(module):
    for child in module.children():
        if isinstance(child, _OBSERVED) and not isinstance(child, DeQuantStub):
            if child.qconfig is not None:
                child.activation_post_process = child.qconfig.activation()
                if not isinstance(child, _quantized.FloatFunctional):
                    child.register_forward_hook(_observe)
        else:
            _watch(child)


def _begin(model, inplace, who):
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    if all(module.qconfig is None for module in model.modules()):
        warnings.warn(f"{who}: no module has a qconfig, so nothing will be quantized: set model.qconfig before", stacklevel=3)
    return model


def prepare(model, inplace=False, allow_list=None, observer_non_leaf_module_list=None, prepare_custom_config_dict=None):
    """The model with observers behind its layers: run it on some data, then `convert` it.

    >>> import wisp
    >>> from wisp.ao import quantization
    >>> model = quantization.QuantWrapper(wisp.nn.Linear(2, 1)).eval()
    >>> model.qconfig = quantization.default_qconfig
    >>> seen = quantization.prepare(model)
    >>> _ = seen(wisp.rand(8, 2))
    >>> type(quantization.convert(seen).module).__name__
    'Linear'
    """
    model = _begin(model, inplace, "prepare")
    _watch(model)
    return model


def prepare_qat(model, mapping=None, inplace=False):
    """The model with layers whose weights and results are rounded as integers would: train it, then `convert` it."""
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    model = _begin(model, inplace, "prepare_qat")
    plain = {nn.Linear: _qat.Linear, nn.Conv1d: _qat.Conv1d, nn.Conv2d: _qat.Conv2d, nn.Conv3d: _qat.Conv3d, **_intrinsic.qat._KINDS}

    def swap(module):
        for name, child in list(module.named_children()):
            kind = plain.get(type(child))
            if kind is not None and child.qconfig is not None:
                made = kind.from_float(child)
                for part in made.modules():  # a normalisation inside is part of the layer
                    part.qconfig = made.qconfig
                setattr(module, name, made)
            else:
                swap(child)

    swap(model)
    _watch(model)
    return model


def _integers_of(layer, choose):
    """The weight as integers, by the scales that `choose` finds."""
    choose(layer.weight.detach())
    scale, zero_point = choose.calculate_qparams()
    weight = layer.weight.detach().float()
    if scale.numel() > 1 or choose.qscheme in _observers._OF_CHANNELS:
        return wisp.quantize_per_channel(weight, scale, zero_point, choose.ch_axis, choose.dtype)
    return wisp.quantize_per_tensor(weight, float(scale), int(zero_point), choose.dtype)


def _converted(module):
    """The layer in integers for one that was observed, or None."""
    if type(module) is DeQuantStub:
        return _quantized.DeQuantize()
    watch = module._modules.get("activation_post_process")
    if watch is None or isinstance(watch, nn.Identity) or not hasattr(watch, "calculate_qparams"):
        return None
    scale, zero_point = (float(found) for found in watch.calculate_qparams())
    if isinstance(module, QuantStub):
        return _quantized.Quantize(scale, zero_point, watch.dtype)
    if isinstance(module, _quantized.FloatFunctional):
        return _quantized.QFunctional(scale, zero_point)
    layer, relu = module, getattr(module, "_relu", False)
    if isinstance(module, (_intrinsic._FusedModule, _intrinsic.qat._Joined)) and not isinstance(layer, _qat._Rounding):
        layer, relu = module[0], True
    if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        choose = layer.weight_fake_quant if isinstance(layer, _qat._Rounding) else module.qconfig.weight()
        if getattr(layer, "bn", None) is not None:
            fold = fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval
            layer = fold(layer.to_float().eval(), layer.bn.eval())
        elif isinstance(layer, _qat._Rounding):
            layer = layer.to_float()
        kind = ("Linear" if isinstance(layer, nn.Linear) else "Conv") + ("ReLU" if relu else "")
        name = kind if isinstance(layer, nn.Linear) else f"{kind}{layer.weight.dim() - 2}d"
        return getattr(_quantized, name)._of(layer, _integers_of(layer, choose), scale, zero_point)
    del module.activation_post_process
    module._forward_hooks.clear()
    kind = getattr(_quantized, type(module).__name__, _quantized._Layer)
    return kind(module.eval(), scale, zero_point)


def convert(module, mapping=None, inplace=False, remove_qconfig=True, is_reference=False, convert_custom_config_dict=None):
    """The model in integers: layers that `prepare` or `prepare_qat` observed take and return quantized tensors."""
    module = module if inplace else copy.deepcopy(module)
    for name, child in list(module.named_children()):
        made = _converted(child)
        if made is None:
            convert(child, inplace=True)
        else:
            setattr(module, name, made)
    if remove_qconfig:
        _remove_qconfig(module)
    return module


def _remove_qconfig(module):
    for part in module.modules():
        part.__dict__.pop("qconfig", None)


def quantize(model, run_fn, run_args, mapping=None, inplace=False):
    """Prepare, call `run_fn(model, *run_args)`, convert."""
    model = prepare((model if inplace else copy.deepcopy(model)).eval(), inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


def quantize_qat(model, run_fn, run_args, inplace=False):
    """Prepare for training, call `run_fn(model, *run_args)`, convert."""
    model = prepare_qat((model if inplace else copy.deepcopy(model)).train(), inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)
