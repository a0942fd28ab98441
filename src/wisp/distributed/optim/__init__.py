"""Optimizers over several processes."""

from wisp.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer
from wisp.optim import Optimizer as _Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class DistributedOptimizer:
    """Steps in other processes by remote calls: not available."""

    def __init__(self, optimizer_class, params_rref, *args, **kwargs):
        raise NotImplementedError("DistributedOptimizer: Wisp calls no functions in other processes; use ZeroRedundancyOptimizer")


class PostLocalSGDOptimizer(_Optimizer):
    """Steps of an optimizer, after each of which `averager` averages the parameters over the processes.

    >>> import wisp
    >>> from wisp.distributed.optim import PostLocalSGDOptimizer
    >>> w = wisp.nn.Parameter(wisp.ones(1))
    >>> class Never:
    ...     step = 0
    ...     def average_parameters(self, params): self.step += 1
    >>> optimizer = PostLocalSGDOptimizer(wisp.optim.SGD([w], lr=0.5), Never())
    >>> w.sum().backward(); optimizer.step(); w
    Parameter containing:
    tensor([0.5000], requires_grad=True)
    """

    def __init__(self, optim, averager):
        self.optim, self.averager, self.param_groups = optim, averager, optim.param_groups

    @property
    def state(self):
        return self.optim.state

    def __repr__(self):
        return repr(self.optim)

    def state_dict(self):
        """The optimizer's state, with the step of the averager."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict):
        self.optim.load_state_dict({key: value for key, value in state_dict.items() if key != "step"})
        self.averager.step = state_dict.get("step", 0)

    def step(self):
        """A step, and the averages."""
        self.optim.step()
        self.averager.average_parameters(params=self.param_groups)

    def zero_grad(self, set_to_none=True):
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, group):
        self.optim.add_param_group(group)
