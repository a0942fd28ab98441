"""Spectral normalisation by a hook: the weight over its largest singular value. (New code: parametrizations.)"""

import wisp
from wisp.nn import functional as F
from wisp.nn.parameter import Parameter, is_lazy

__all__ = ["SpectralNorm", "SpectralNormLoadStateDictPreHook", "SpectralNormStateDictHook", "spectral_norm", "remove_spectral_norm"]


class SpectralNorm:
    """The hook that computes the weight before each forward, by power iteration."""

    _version = 1

    def __init__(self, name="weight", n_power_iterations=1, dim=0, eps=1e-12):
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.name, self.dim, self.n_power_iterations, self.eps = name, dim, n_power_iterations, eps

    def reshape_weight_to_matrix(self, weight):
        if self.dim != 0:
            weight = (
                weight.transpose(0, self.dim)
                if weight.dim() == 2
                else weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
            )
        return weight.reshape(weight.shape[0], -1)

    def compute_weight(self, module, do_power_iteration):
        """The normalised weight; the vectors u and v are improved first if asked."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with wisp.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(wisp.mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(wisp.mv(matrix, v), dim=0, eps=self.eps))
                if self.n_power_iterations > 0:  # backward needs them as they are now
                    u, v = u.clone(), v.clone()
        sigma = wisp.dot(u, wisp.mv(matrix, v))
        return weight / sigma

    def remove(self, module):
        """Make the weight an ordinary parameter again."""
        with wisp.no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        delattr(module, self.name)
        for suffix in ("_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))

    @staticmethod
    def apply(module, name, n_power_iterations, dim, eps):
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        fn = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError(
                "The module passed to `SpectralNorm` can't have uninitialized parameters. Make sure to "
                "run the dummy forward before applying spectral normalization"
            )
        with wisp.no_grad():
            rows, columns = fn.reshape_weight_to_matrix(weight).shape
            u = F.normalize(weight.new_empty(rows).normal_(0, 1), dim=0, eps=eps)
            v = F.normalize(weight.new_empty(columns).normal_(0, 1), dim=0, eps=eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(fn)
        module._register_state_dict_hook(SpectralNormStateDictHook(fn))
        module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(fn))
        return fn


class SpectralNormLoadStateDictPreHook:
    """Says so when a file is too old to have the vector v, which can't be computed exactly afterwards."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        name = prefix + self.fn.name
        if name + "_orig" in state_dict and name + "_u" in state_dict and name + "_v" not in state_dict:
            with wisp.no_grad():
                matrix = self.fn.reshape_weight_to_matrix(state_dict[name + "_orig"])
                v = F.normalize(wisp.mv(matrix.t(), state_dict[name + "_u"]), dim=0, eps=self.fn.eps)
                state_dict[name + "_v"] = v


class SpectralNormStateDictHook:
    """Notes the version in the metadata, as PyTorch does."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, module, state_dict, prefix, local_metadata):
        versions = local_metadata.setdefault("spectral_norm", {})
        versions[self.fn.name + ".version"] = self.fn._version


def _default_dim(module, dim):
    from wisp.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d

    if dim is None:
        return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    return dim


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divide a weight by its largest singular value (Miyato et al., 2018).

    >>> import wisp
    >>> layer = wisp.nn.utils.spectral_norm(wisp.nn.Linear(20, 40))
    >>> tuple(layer.weight_u.shape)
    (40,)
    """
    SpectralNorm.apply(module, name, n_power_iterations, _default_dim(module, dim), eps)
    return module


def remove_spectral_norm(module, name="weight"):
    """Undo `spectral_norm`."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            break
    else:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for hooks, kind in (
        (module._state_dict_hooks, SpectralNormStateDictHook),
        (module._load_state_dict_pre_hooks, SpectralNormLoadStateDictPreHook),
    ):
        for key, hook in hooks.items():
            hook = getattr(hook, "hook", hook)
            if isinstance(hook, kind) and hook.fn.name == name:
                del hooks[key]
                break
    return module
