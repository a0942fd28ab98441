"""Averages of a model's weights over training: stochastic weight averaging and exponential moving averages."""

import copy
import itertools
import math

import wisp
from wisp import _reference, nn
from wisp.optim._lr_base import LRScheduler, _per_group
from wisp.utils._foreach_utils import _group_tensors_by_device_and_dtype  # noqa: F401 (libraries take it from here)

__all__ = ["AveragedModel", "update_bn", "SWALR", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn", "get_ema_avg_fn", "get_swa_avg_fn"]


def _check_decay(decay):
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay=0.999):
    """The function that updates an exponential moving average of one parameter."""
    _check_decay(decay)

    @wisp.no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn():
    """The function that updates the plain average of one parameter."""

    @wisp.no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _on_lists(update):
    @wisp.no_grad()
    def update_all(averaged_params, current_params, num_averaged):
        for averaged, current in zip(averaged_params, current_params, strict=True):
            averaged.copy_(update(averaged, current, num_averaged))

    return update_all


def get_ema_multi_avg_fn(decay=0.999):
    """As `get_ema_avg_fn`, for lists of parameters."""
    return _on_lists(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn():
    """As `get_swa_avg_fn`, for lists of parameters."""
    return _on_lists(get_swa_avg_fn())


class AveragedModel(nn.Module):
    """A copy of a model whose parameters are averages: call `update_parameters(model)` after a training step.

    `avg_fn(averaged, current, n)` or `multi_avg_fn` on lists say how to average (default: the plain mean);
    with `use_buffers` the buffers are averaged too, otherwise they are copied.
    """

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", wisp.tensor(0, dtype=wisp.int64, device=device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def _averaged(self, module):
        tensors = itertools.chain(module.parameters(), module.buffers()) if self.use_buffers else module.parameters()
        return [tensor.detach() for tensor in tensors]

    def update_parameters(self, model):
        averaged = self._averaged(self.module)
        current = [tensor.to(mine.device) for mine, tensor in zip(averaged, self._averaged(model))]
        if self.n_averaged == 0:
            for mine, tensor in zip(averaged, current):
                mine.copy_(tensor)
        elif self.multi_avg_fn is not None:
            kinds = {}
            for mine, tensor in zip(averaged, current):
                kinds.setdefault((mine.device, mine.dtype), []).append((mine, tensor))
            for (device, _), pairs in kinds.items():
                self.multi_avg_fn(*map(list, zip(*pairs)), self.n_averaged.to(device))
        else:
            average = self.avg_fn or get_swa_avg_fn()
            for mine, tensor in zip(averaged, current):
                mine.copy_(average(mine, tensor, self.n_averaged.to(mine.device)))
        if not self.use_buffers:
            for mine, tensor in zip(self.module.buffers(), model.buffers(), strict=True):
                mine.detach().copy_(tensor.detach().to(mine.device))
        self.n_averaged += 1


@wisp.no_grad()
def update_bn(loader, model, device=None):
    """Compute the running statistics of the model's batch norm layers anew, in one pass over `loader`."""
    momenta = {}
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None  # a plain average over all batches
    for batch in loader:
        inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(inputs if device is None else inputs.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Moves the rate to `swa_lr` in `anneal_epochs` epochs, along a cosine or a line, and keeps it there."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        for group, rate in zip(optimizer.param_groups, _per_group("swa_lr", optimizer, swa_lr)):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _progress(self, step):
        """How far from the first rate to `swa_lr`, between 0 and 1."""
        done = max(0, min(1, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * done)) / 2 if self._anneal_strategy == "cos" else done

    def get_lr(self):
        self._warn_outside_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._progress(step - 1), self._progress(step)
        rates = []
        for group in self.optimizer.param_groups:  # the first rate follows from the present one
            goal = group["swa_lr"]
            first = goal if before == 1 else (group["lr"] - before * goal) / (1 - before)
            rates.append(goal * now + first * (1 - now))
        return rates


_reference.attach(__name__, globals())
