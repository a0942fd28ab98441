"""An optimizer whose state is divided: each rank keeps and updates the state of some parameters, and sends their new values to all."""

import wisp
from wisp import distributed
from wisp.distributed._groups import resolve
from wisp.optim.optimizer import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """Any optimizer, with 1/N of its state in each of N ranks. For a model in DistributedDataParallel, whose gradients all ranks have.

    >>> import wisp
    >>> from wisp.distributed.optim import ZeroRedundancyOptimizer
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> model = wisp.nn.Linear(2, 1)
    >>> optimizer = ZeroRedundancyOptimizer(model.parameters(), wisp.optim.Adam, lr=0.1)
    >>> model(wisp.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.consolidate_state_dict()
    >>> sorted(optimizer.state_dict()["state"])
    [0, 1]
    >>> wisp.distributed.destroy_process_group()
    """

    def __init__(self, params, optimizer_class, process_group=None, parameters_as_bucket_view=False, overlap_with_ddp=False, **defaults):
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp is not supported; leave it away")
        self.process_group = resolve("ZeroRedundancyOptimizer", process_group)
        self._class, self._everything, self.optim = optimizer_class, None, None
        probe = optimizer_class([wisp.zeros(1, requires_grad=True)], **defaults)  # says the defaults that were not given
        super().__init__(params, probe.defaults)
        self._divide()

    def _divide(self):
        """The largest parameters first, each to the rank that has least: the same in all ranks."""
        loads = [0] * self.process_group.size()
        self._owner = {}
        for parameter in sorted((p for group in self.param_groups for p in group["params"]), key=lambda p: -p.numel()):
            rank = loads.index(min(loads))
            self._owner[parameter] = rank
            loads[rank] += parameter.numel()
        before = self.optim.state if self.optim is not None else {}
        groups = [
            {
                **{name: value for name, value in group.items() if name not in ("params", "param_names")},
                "params": [p for p in group["params"] if self._owner[p] == self.process_group.rank()],
            }
            for group in self.param_groups
        ]
        self.optim = self._class(groups)
        self.optim.state.update({p: value for p, value in before.items() if self._owner.get(p) == self.process_group.rank()})

    def add_param_group(self, param_group):
        """Add a group of parameters, which are divided among the ranks as the others; state that moves to another rank begins anew."""
        super().add_param_group(param_group)
        if self.optim is not None:
            self._divide()

    def step(self, closure=None, **options):
        """Update this rank's parameters, then get the others' from their ranks."""
        if self._join_config is not None:
            from wisp.distributed.algorithms import Join

            Join.notify_join_context(self)
        return self._step(closure)

    def _step(self, closure=None):
        for mine, whole in zip(self.optim.param_groups, self.param_groups):
            mine.update({name: value for name, value in whole.items() if name not in ("params", "param_names")})
        loss = self.optim.step(closure) if closure is not None else self.optim.step()
        self._everything = None
        self._share()
        return loss

    def _share(self):
        if self.process_group.size() == 1:
            return
        sent = []
        for rank in range(self.process_group.size()):
            kinds = {}
            for parameter, owner in self._owner.items():
                if owner == rank:
                    kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter.detach())
            for same in kinds.values():
                flat = wisp.cat([tensor.reshape(-1) for tensor in same])
                sent.append((rank, same, flat, distributed.broadcast(flat, group_src=rank, group=self.process_group, async_op=True)))
        for rank, same, flat, work in sent:
            work.wait()
            if rank != self.process_group.rank():
                for tensor, part in zip(same, flat.split([tensor.numel() for tensor in same])):
                    tensor.copy_(part.view(tensor.shape))

    _join_config = None

    def join_hook(self, **options):
        """For `wisp.distributed.algorithms.Join`: a rank without batches still updates its parameters, with the gradients that
        DistributedDataParallel gives it."""
        from wisp.distributed.algorithms.join import make_hook

        return make_hook(self._step)

    @property
    def join_device(self):
        """The device of the parameters."""
        return next(iter(self._owner)).device

    @property
    def join_process_group(self):
        """The group that shares the state."""
        return self.process_group

    def _numbers(self):
        return {parameter: number for number, parameter in enumerate(p for group in self.param_groups for p in group["params"])}

    def consolidate_state_dict(self, to=0):
        """Bring the whole state to rank `to`; all ranks call it. `state_dict()` then works there."""
        numbers = self._numbers()
        mine = {numbers[parameter]: dict(values) for parameter, values in self.optim.state.items()}
        here = distributed.get_rank() == to
        found = [None] * self.process_group.size() if here else None
        distributed.gather_object(mine, found, dst=to, group=self.process_group)
        self._everything = {number: values for part in found for number, values in part.items()} if here else None

    def state_dict(self):
        """The whole state, as the optimizer would have it in one process; on the rank of `consolidate_state_dict`."""
        if self._everything is None:
            raise RuntimeError(
                f"Optimizer state has not been consolidated on this rank (rank {distributed.get_rank()}). Please call "
                "`consolidate_state_dict(to=...)` on all ranks beforehand if you meant to save the global state."
            )
        result = super().state_dict()
        result["state"] = dict(sorted(self._everything.items()))
        return result

    def load_state_dict(self, state_dict):
        """Take over a whole state, saved by any number of ranks, or by the optimizer itself."""
        super().load_state_dict(state_dict)
        mine = {p: values for p, values in self.state.items() if self._owner.get(p) == self.process_group.rank()}
        self.state.clear()
        self._everything = None
        self.optim.state.clear()
        self.optim.state.update(mine)
