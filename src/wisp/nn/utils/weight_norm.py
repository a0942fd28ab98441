"""Weight normalisation by a hook: `weight_g` times the direction of `weight_v`. (New code: parametrizations.)"""

import warnings

from wisp.nn.parameter import Parameter, is_lazy

__all__ = ["WeightNorm", "weight_norm", "remove_weight_norm"]


def norm_except_dim(v, dim):
    """The Euclidean norm over all dimensions but one, which are kept with size 1; over all if `dim` is -1."""
    if dim == -1:
        return v.norm()
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    return v.norm(dim=others, keepdim=True) if others else v.abs()


def scaled_direction(v, g, dim):
    """`g * v / |v|`."""
    return v * (g / norm_except_dim(v, dim))


class WeightNorm:
    """The hook that computes the weight before each forward."""

    def __init__(self, name, dim):
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module):
        """The weight from its two parameters."""
        return scaled_direction(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module, name, dim):
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        fn = WeightNorm(name, dim)
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. Make sure to run "
                "the dummy forward before applying weight normalization"
            )
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(norm_except_dim(weight, fn.dim).data))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, fn.compute_weight(module))
        module.register_forward_pre_hook(fn)
        return fn

    def remove(self, module):
        """Make the weight an ordinary parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module, name="weight", dim=0):
    """Split a weight into its norm `weight_g` and its direction `weight_v` (Salimans and Kingma, 2016).

    >>> import wisp
    >>> layer = wisp.nn.utils.weight_norm(wisp.nn.Linear(20, 40))
    >>> tuple(layer.weight_g.shape), tuple(layer.weight_v.shape)
    ((40, 1), (40, 20))
    """
    warnings.warn("`nn.utils.weight_norm` is deprecated in favor of `nn.utils.parametrizations.weight_norm`.", FutureWarning, stacklevel=2)
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module, name="weight"):
    """Undo `weight_norm`."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
