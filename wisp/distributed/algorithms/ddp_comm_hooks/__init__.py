"""Ways to send gradients that `DistributedDataParallel.register_comm_hook` takes; in a group of one nothing is sent."""
from wisp.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook  # noqa: F401
