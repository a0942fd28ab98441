"""DistributedDataParallel over the process groups that `wisp.distributed` has."""
import contextlib

from wisp.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """A module whose gradients are averaged over all processes; in a group of one, the module itself.

    The state_dict's keys begin with "module.", as in PyTorch.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, init_sync=True, process_group=None,
                 bucket_cap_mb=None, find_unused_parameters=False, check_reduction=False, gradient_as_bucket_view=False,
                 static_graph=False, **options):
        super().__init__()
        from wisp import distributed
        if not distributed.is_initialized():
            raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        self.module, self.device_ids, self.output_device, self.dim = module, device_ids, output_device, dim
        self.process_group, self.require_backward_grad_sync = process_group, True

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients made in this block are not averaged yet."""
        self.require_backward_grad_sync, before = False, self.require_backward_grad_sync
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state, hook):
        """Accepted: in a group of one process nothing is sent."""
