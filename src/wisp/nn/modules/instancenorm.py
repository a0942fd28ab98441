"""Instance normalisation: every channel of every sample by its own mean and variance."""

import warnings

from wisp.nn import functional as F
from wisp.nn.modules.batchnorm import _LazyNormBase, _NormBase

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d"]


class _InstanceNorm(_NormBase):
    dims = 0  # of one channel

    def __init__(
        self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None, dtype=None, *, bias=True
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        version = local_metadata.get("version")
        if version is None and not self.track_running_stats:
            found = [prefix + name for name in ("running_mean", "running_var") if prefix + name in state_dict]
            if found:
                names = " and ".join(f'"{name}"' for name in found)
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {names} for {type(self).__name__} with track_running_stats=False. The file is "
                    "from a version in which instance normalisation tracked them by default; delete these keys to load it."
                )
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def _check_input_dim(self, input):
        self._expect_dims(input, self.dims + 1, self.dims + 2)

    def _get_no_batch_dim(self):
        return self.dims + 1

    def _get_num_features(self, input):
        return input.shape[-1 - self.dims]

    def forward(self, input):
        self._check_input_dim(input)
        channel_dim = input.dim() - 1 - self.dims
        if input.shape[channel_dim] != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={channel_dim} to match num_features "
                    f"({self.num_features}), but got: {input.shape[channel_dim]}."
                )
            warnings.warn(
                f"input's size at dim={channel_dim} does not match num_features. You can silence this "
                "warning by not passing in num_features, which is not used because affine=False",
                stacklevel=2,
            )
        batched = input.dim() == self.dims + 2
        output = F.instance_norm(
            input if batched else input.unsqueeze(0),
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
        return output if batched else output.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L)."""

    dims = 1


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W).

    >>> import wisp
    >>> layer = wisp.nn.InstanceNorm2d(3)
    >>> tuple(layer(wisp.randn(2, 3, 4, 4)).shape)
    (2, 3, 4, 4)
    """

    dims = 2


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W)."""

    dims = 3


class _LazyInstanceNorm(_LazyNormBase):
    def _get_num_features(self, input):
        return _InstanceNorm._get_num_features(self, input)


class LazyInstanceNorm1d(_LazyInstanceNorm, _InstanceNorm):
    """An InstanceNorm1d that learns `num_features` from its first input."""

    dims = 1
    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, _InstanceNorm):
    """An InstanceNorm2d that learns `num_features` from its first input."""

    dims = 2
    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, _InstanceNorm):
    """An InstanceNorm3d that learns `num_features` from its first input."""

    dims = 3
    cls_to_become = InstanceNorm3d
