"""Batch normalisation, its synchronised form, and what it shares with instance normalisation."""

import wisp
from wisp.nn import functional as F
from wisp.nn import init
from wisp.nn.modules.lazy import LazyModuleMixin
from wisp.nn.modules.module import Module
from wisp.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter

__all__ = ["BatchNorm1d", "LazyBatchNorm1d", "BatchNorm2d", "LazyBatchNorm2d", "BatchNorm3d", "LazyBatchNorm3d", "SyncBatchNorm"]


class _NormBase(Module):
    """Scale, shift and running statistics of `num_features` channels."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *, bias=True):
        factory = {"device": device, "dtype": dtype}
        super().__init__()
        self.num_features, self.eps, self.momentum, self.affine = num_features, eps, momentum, affine
        self.track_running_stats = track_running_stats
        self.register_parameter("weight", Parameter(wisp.empty(num_features, **factory)) if affine else None)
        self.register_parameter("bias", Parameter(wisp.empty(num_features, **factory)) if affine and bias else None)
        track = track_running_stats
        self.register_buffer("running_mean", wisp.zeros(num_features, **factory) if track else None)
        self.register_buffer("running_var", wisp.ones(num_features, **factory) if track else None)
        self.register_buffer("num_batches_tracked", wisp.tensor(0, dtype=wisp.long, device=device) if track else None)
        self.reset_parameters()

    def reset_running_stats(self):
        """Forget the running statistics: mean 0, variance 1."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        """Forget the running statistics, and set scale 1 and shift 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input):
        raise NotImplementedError

    def _expect_dims(self, input, *dims):
        if input.dim() not in dims:
            raise ValueError(f"expected {' or '.join(f'{d}D' for d in dims)} input (got {input.dim()}D input)")

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args):
        version = local_metadata.get("version")
        if (version is None or version < 2) and self.track_running_stats:
            key = prefix + "num_batches_tracked"  # old files do not have it
            if key not in state_dict:
                state_dict[key] = self.num_batches_tracked if self.num_batches_tracked is not None else wisp.tensor(0, dtype=wisp.long)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)


class _BatchNorm(_NormBase):
    def forward(self, input):
        self._check_input_dim(input)
        tracking = self.training and self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        if tracking and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # a plain average over all batches
                momentum = 1.0 / float(self.num_batches_tracked)
        use_batch = self.training or (self.running_mean is None and self.running_var is None)
        keep = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if keep else None,
            self.running_var if keep else None,
            self.weight,
            self.bias,
            use_batch,
            momentum,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L).

    >>> import wisp
    >>> layer = wisp.nn.BatchNorm1d(100)
    >>> tuple(layer(wisp.randn(20, 100)).shape), layer.num_batches_tracked.item()
    ((20, 100), 1)
    """

    def _check_input_dim(self, input):
        self._expect_dims(input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W): each channel to mean 0 and variance 1 over the batch, then scaled.

    >>> import wisp
    >>> layer = wisp.nn.BatchNorm2d(3)
    >>> abs(layer(wisp.randn(4, 3, 5, 5)).mean().item()) < 1e-5
    True
    """

    def _check_input_dim(self, input):
        self._expect_dims(input, 4)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W)."""

    def _check_input_dim(self, input):
        self._expect_dims(input, 5)


class _LazyNormBase(LazyModuleMixin, _NormBase):
    def __init__(self, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *, bias=True):
        factory = {"device": device, "dtype": dtype}
        super().__init__(0, eps, momentum, False, False, **factory)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(**factory)
            if bias:
                self.bias = UninitializedParameter(**factory)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**factory)
            self.running_var = UninitializedBuffer(**factory)
            self.num_batches_tracked = wisp.tensor(0, dtype=wisp.long, device=device)

    def reset_parameters(self):
        if self.num_features != 0 and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input):
        if not self.has_uninitialized_params():
            return
        self.num_features = self._get_num_features(input)
        for tensor in (self.weight, self.bias, self.running_mean, self.running_var):
            if tensor is not None:
                tensor.materialize((self.num_features,))
        self.reset_parameters()

    def _get_num_features(self, input):
        return input.shape[1]


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """A BatchNorm1d that learns `num_features` from its first input."""

    cls_to_become = BatchNorm1d
    _check_input_dim = BatchNorm1d._check_input_dim


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """A BatchNorm2d that learns `num_features` from its first input."""

    cls_to_become = BatchNorm2d
    _check_input_dim = BatchNorm2d._check_input_dim


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """A BatchNorm3d that learns `num_features` from its first input."""

    cls_to_become = BatchNorm3d
    _check_input_dim = BatchNorm3d._check_input_dim


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all processes of a group; in one process, the same as BatchNorm."""

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        process_group=None,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _world_size(self):
        distributed = wisp.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return 1
        return distributed.get_world_size(self.process_group)

    def forward(self, input):
        if not self.training or self._world_size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        dims = [d for d in range(input.dim()) if d != 1]
        shape = [1, -1] + [1] * (input.dim() - 2)
        # the mean first and the squares around it second: the difference of two large sums would lose the variance
        count = input.new_full((1,), input.numel() / input.shape[1])
        sums = _AllReduceSum.apply(wisp.cat([count, input.sum(dims)]), self.process_group)
        count, total = sums.split([1, self.num_features])
        mean = total / count
        centred = input - mean.view(shape)
        var = _AllReduceSum.apply((centred * centred).sum(dims), self.process_group) / count
        if self.track_running_stats:
            self.num_batches_tracked.add_(1)
            momentum = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            with wisp.no_grad():
                self.running_mean.mul_(1 - momentum).add_(mean.detach() * momentum)
                self.running_var.mul_(1 - momentum).add_(var.detach() * (count / (count - 1)) * momentum)
        output = centred * (var + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            output = output * self.weight.view(shape)
        return output if self.bias is None else output + self.bias.view(shape)

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """A module with all its BatchNorm layers replaced by SyncBatchNorm layers with the same tensors.

        >>> import wisp
        >>> model = wisp.nn.Sequential(wisp.nn.Linear(3, 4), wisp.nn.BatchNorm1d(4))
        >>> type(wisp.nn.SyncBatchNorm.convert_sync_batchnorm(model)[1]).__name__
        'SyncBatchNorm'
        """
        result = module
        if isinstance(module, _BatchNorm):
            result = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
                bias=module.bias is not None,
            )
            result._parameters, result._buffers = module._parameters, module._buffers
            result.training = module.training
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result


class _AllReduceSum(wisp.autograd.Function):
    # The sum over all processes; so is its gradient.
    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        result = tensor.detach().clone()
        wisp.distributed.all_reduce(result, group=group)
        return result

    @staticmethod
    def backward(ctx, grad):
        return _AllReduceSum.apply(grad, ctx.group), None
