"""DistributedDataParallel: the same model in every process, each on its part of the batch, with gradients averaged during backward.

Gradients travel in buckets, in the order in which backward makes them: while MPI or NCCL carries a full bucket, backward fills the next.
A gradient is written to its bucket as soon as it is made, and is a part of the bucket from then on: it is copied once.
(One that was there before backward, from an accumulation, stays where it is, and gets the average back.)
"""

import contextlib
import hashlib

import wisp
from wisp.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]

FIRST_BUCKET = 1 << 20  # bytes; small, so that the first reduction begins early
BUCKET = {"cpu": 4, "cuda": 25}  # MB; a CPU's model is smaller, and what comes after the last gradient is not hidden


class GradBucket:
    """Some gradients in one flat tensor, as a communication hook gets them."""

    def __init__(self, index, parameters):
        self._index, self._parameters, self._last = index, parameters, False
        self._sizes, self._shapes = [p.numel() for p in parameters], [p.shape for p in parameters]
        self._total = sum(self._sizes)
        self.flat, self.views = None, ()
        self.left, self.result = len(parameters), None

    def renew(self):
        """New memory: that of the last step belongs to the gradients of that step."""
        first = self._parameters[0]
        self.flat = wisp.empty(self._total, dtype=first.dtype, device=first.device)
        self.views = [part.view(shape) for part, shape in zip(self.flat.split(self._sizes), self._shapes)]

    def index(self):
        """The number of the bucket; 0 is the first to be full."""
        return self._index

    def buffer(self):
        """The flat tensor of all gradients."""
        return self.flat

    def set_buffer(self, tensor):
        """Other values for the flat tensor."""
        self.flat.copy_(tensor)

    def gradients(self):
        """The gradients, as views of the flat tensor."""
        return list(self.views)

    def parameters(self):
        """The parameters whose gradients are here."""
        return list(self._parameters)

    def is_last(self):
        """Whether no bucket comes after this one."""
        return self._last


class DistributedDataParallel(Module):
    """A module whose gradients are averaged over all processes during backward. The state_dict's keys begin with "module.", as in PyTorch.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> model = wisp.nn.parallel.DistributedDataParallel(wisp.nn.Linear(2, 1))
    >>> model(wisp.ones(3, 2)).sum().backward()
    >>> model.module.bias.grad, list(model.state_dict())
    (tensor([3.]), ['module.weight', 'module.bias'])
    >>> wisp.distributed.destroy_process_group()
    """

    def __init__(
        self,
        module,
        device_ids=None,
        output_device=None,
        dim=0,
        broadcast_buffers=True,
        init_sync=True,
        process_group=None,
        bucket_cap_mb=None,
        find_unused_parameters=False,
        check_reduction=False,
        gradient_as_bucket_view=False,
        static_graph=False,
        delay_all_reduce_named_params=None,
        param_to_hook_all_reduce=None,
        mixed_precision=None,
        device_mesh=None,
        skip_all_reduce_unused_params=False,
    ):
        super().__init__()
        from wisp import distributed
        from wisp.distributed._groups import resolve

        self.process_group = resolve("DistributedDataParallel", process_group)
        for name, value in (
            ("mixed_precision", mixed_precision),
            ("device_mesh", device_mesh),
            ("delay_all_reduce_named_params", delay_all_reduce_named_params),
        ):
            if value is not None:
                raise NotImplementedError(
                    f"DistributedDataParallel: {name} is not supported; leave it away (autocast works inside of forward)"
                )
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        self.module, self.device_ids, self.output_device, self.dim = module, device_ids, output_device, dim
        self.broadcast_buffers, self.find_unused_parameters, self.static_graph = broadcast_buffers, find_unused_parameters, static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        if bucket_cap_mb is None:
            bucket_cap_mb = BUCKET.get(next(module.parameters()).device.type, 25)
        self.bucket_bytes_cap = int(bucket_cap_mb * (1 << 20))
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        # each tensor once, under the first of its names
        self._names = {parameter: name for name, parameter in module.named_parameters() if parameter.requires_grad and name not in ignored}
        self._shared_buffers = [buffer for name, buffer in module.named_buffers() if name not in ignored]
        self._comm_hook = None
        self._seen, self._armed, self._started, self._rebuilt = [], False, False, False
        if init_sync and self.process_group.size() > 1:
            self._check_models()
            states = [parameter for name, parameter in module.named_parameters() if name not in ignored]
            self._broadcast(states + self._shared_buffers)
        # NCCL divides on its way; for MPI a gradient is divided while it is in the cache
        averages = "cuda" in self.process_group.backends and next(iter(self._names)).is_cuda
        self._all_reduce, self._op = distributed.all_reduce, "AVG" if averages else "SUM"
        self._share = 1 if averages else 1 / self.process_group.size()
        self._plain = self._op, self._share
        # backward makes gradients roughly in the reverse order of the parameters; after the first step the true order is known
        self._order = list(reversed(self._names))
        self._build()
        self._handles = [parameter.register_post_accumulate_grad_hook(self._ready) for parameter in self._names]

    def _check_models(self):
        from wisp.distributed.collectives import agree

        listing = "; ".join(f"{name} {list(p.shape)} {p.dtype}" for p, name in self._names.items())
        total = sum(parameter.numel() for parameter in self._names)
        agree(
            self.process_group,
            "model " + hashlib.sha1(listing.encode()).hexdigest(),
            f"DistributedDataParallel({type(self.module).__name__} with {len(self._names)} parameters of {total} elements)",
        )

    def _broadcast(self, tensors, source=0):
        """The values of one rank, rank 0's by default; few messages: one flat tensor per dtype."""
        from wisp import distributed

        kinds = {}
        for tensor in tensors:
            if tensor.numel():
                kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor.detach())
        for same in kinds.values():
            flat = wisp.cat([tensor.reshape(-1) for tensor in same])
            distributed.broadcast(flat, group_src=source, group=self.process_group)
            if self.process_group.rank() != source:
                with wisp.no_grad():
                    for tensor, part in zip(same, flat.split([tensor.numel() for tensor in same])):
                        tensor.copy_(part.view(tensor.shape))

    def _build(self):
        """Cut the parameters, in the order of their gradients, into buckets."""
        self._buckets, self._place, open_ = [], {}, {}
        limit = min(FIRST_BUCKET, self.bucket_bytes_cap)

        def close(kind):
            nonlocal limit
            bucket = GradBucket(len(self._buckets), open_.pop(kind)[0])
            for position, parameter in enumerate(bucket._parameters):
                self._place[parameter] = bucket, position
            self._buckets.append(bucket)
            limit = self.bucket_bytes_cap

        for parameter in self._order:
            kind = parameter.dtype, parameter.device
            members = open_.setdefault(kind, [[], 0])
            members[0].append(parameter)
            members[1] += parameter.numel() * parameter.element_size()
            if members[1] >= limit:
                close(kind)
        for kind in list(open_):
            close(kind)
        self._buckets[-1]._last = True

    def forward(self, *inputs, **kwargs):
        if self.process_group.size() == 1 and self._comm_hook is None:
            return self.module(*inputs, **kwargs)
        syncing = wisp.is_grad_enabled() and self.require_backward_grad_sync
        if syncing:
            self._check_finished()
            if not self._rebuilt and len(self._seen) == len(self._names):
                self._reorder()
        buffers = self.require_forward_param_sync and self.broadcast_buffers and bool(self._shared_buffers)
        if self._join_config is not None:
            from wisp.distributed.algorithms import Join

            Join.notify_join_context(self)
            self._step_of_join(True, syncing, buffers)
        if buffers:
            self._broadcast(self._shared_buffers, self._source)
        output = self.module(*inputs, **kwargs)
        self.require_forward_param_sync = self.require_backward_grad_sync
        self._armed = syncing
        if syncing:
            self._begin(output)
        return output

    @property
    def reducer(self):
        """What joins gradients; `reducer.prepare_for_backward([])` has the next backward join them, though its forward ran in `no_sync`."""
        return _Reducer(self)

    def _begin(self, output):
        """Before backward: nothing is ready, except what the output does not depend on."""
        self._seen, self._next, self._unused = [], 0, set()
        self._prepare()
        if output is not None and (self.find_unused_parameters or self.static_graph):
            used = _leaves(output)
            self._unused = {parameter for parameter in self._names if parameter not in used}
            for parameter in self._unused:
                bucket, position = self._place[parameter]
                if parameter.grad is None:
                    bucket.views[position].zero_()
                else:  # what earlier backwards under no_sync have left
                    self._put(parameter, bucket.views[position])
                bucket.left -= 1

    def _prepare(self):
        for bucket in self._buckets:
            bucket.left, bucket.result = len(bucket._parameters), None
            if bucket.flat is None or not self.gradient_as_bucket_view:
                bucket.renew()
        # a gradient that is there already is added to where it is, and its memory is the user's
        self._kept = set() if self.gradient_as_bucket_view else {p for p in self._names if p.grad is not None}

    def _ready(self, parameter):
        """A gradient is there (called by backward)."""
        if not self._armed:
            return
        bucket, position = self._place[parameter]
        if not self._started:
            self._started, self._done = True, set()
        if parameter in self._done or parameter in self._unused:
            raise RuntimeError(
                f"DistributedDataParallel: Expected to mark a variable ready only once: the gradient of {self._names[parameter]} was "
                "made twice in one backward, or after it was found unused. A part of the model that runs again inside of backward "
                "(reentrant checkpoints) does that: use checkpoint(..., use_reentrant=False)"
            )
        self._done.add(parameter)
        self._seen.append(parameter)
        self._put(parameter, bucket.views[position])
        bucket.left -= 1
        while self._next < len(self._buckets) and self._buckets[self._next].left == 0:
            self._reduce(self._buckets[self._next])
            self._next += 1
        if self._next == len(self._buckets):
            self._finish()
        elif self.process_group.pending:
            self.process_group.pending[0].is_completed()  # MPI goes on when it is asked

    def _put(self, parameter, view):
        """A gradient's part of the average into its place in the bucket."""
        with wisp.no_grad():
            grad = parameter.grad
            if grad.layout is not wisp.strided:
                parameter.grad = grad = grad.to_dense()  # sparse here, it may not be in the other ranks
            if self._comm_hook is None and self._share != 1:
                grad.mul_(self._share)  # while it is in the cache
            if grad is not view:
                view.copy_(grad)
                if parameter not in self._kept:
                    parameter.grad = view

    def _reduce(self, bucket):
        if self._comm_hook is None:
            bucket.result = self._all_reduce(bucket.flat, self._op, self.process_group, async_op=True)
        else:
            state, hook = self._comm_hook
            bucket.result = hook(state, bucket)

    def _finish(self):
        """All buckets are on their way: wait for them, and put the averages where the gradients are."""
        self._armed = self._started = False
        absent = self._unused
        if self.find_unused_parameters or self.static_graph:
            absent = self._unused_everywhere()
        with wisp.no_grad():
            for bucket in self._buckets:
                self._wait(bucket)
                for parameter, view in zip(bucket._parameters, bucket.views):
                    if parameter in absent:
                        continue
                    if parameter in self._kept:
                        parameter.grad.copy_(view)
                    elif parameter.grad is not view:
                        parameter.grad = view

    def _wait(self, bucket):
        value, bucket.result = bucket.result.wait(), None
        if self._comm_hook is not None:
            value = value[0] if isinstance(value, (list, tuple)) else value
            if not isinstance(value, wisp.Tensor) or value.numel() != bucket.flat.numel():
                raise RuntimeError(
                    "DistributedDataParallel: the communication hook must give a Future of a tensor of "
                    f"{bucket.flat.numel()} elements, got {type(value).__name__}"
                )
            if value.data_ptr() != bucket.flat.data_ptr():
                bucket.flat.copy_(value.view(-1))

    def _unused_everywhere(self):
        """Parameters that no rank used: their gradients stay as they are."""
        names = list(self._names)
        used = wisp.tensor([parameter not in self._unused for parameter in names], dtype=wisp.int32)
        self._all_reduce(used, group=self.process_group)
        return {parameter for parameter, count in zip(names, used.tolist()) if count == 0}

    def _check_finished(self):
        if not self._started:
            return
        self._started = self._armed = False
        missing = [name for parameter, name in self._names.items() if parameter not in self._done and parameter not in self._unused]
        raise RuntimeError(
            "DistributedDataParallel: Expected to have finished reduction in the prior iteration before starting a new one. This "
            "error indicates "
            f"that your module has parameters that were not used in producing loss: rank {self.process_group.rank()} got no gradient for "
            f"{', '.join(missing)}. Pass find_unused_parameters=True, and make sure that the output of forward takes part in the loss."
        )

    def _reorder(self):
        """From the second step on, buckets follow the order in which rank 0's gradients came."""
        from wisp import distributed

        self._rebuilt = True
        if self.find_unused_parameters or self.static_graph:
            return
        names = list(self._names)
        positions = {parameter: number for number, parameter in enumerate(names)}
        order = [[positions[parameter] for parameter in self._seen]]
        distributed.broadcast_object_list(order, group_src=0, group=self.process_group)
        self._order = [names[number] for number in order[0]]
        self._build()

    # ------------------------------------------------------------ Join: ranks with fewer batches
    _source, _join_config, _divide_by_active = 0, None, False

    def _step_of_join(self, active, syncing=False, buffers=False):
        """The ranks tell each other who takes part in a step, and what there is to do: (whether to reduce, whether to send buffers)."""
        told = wisp.tensor([active, syncing, buffers], dtype=wisp.int64)
        self._all_reduce(told, group=self.process_group)
        self._find_source(active)  # of buffers: a rank without batches has old ones
        if self._divide_by_active:
            self._op, self._share = "SUM", 1 / int(told[0])
        return bool(told[1]), bool(told[2])

    def _find_source(self, candidate):
        source = wisp.tensor([self.process_group.rank() if candidate else -1])
        self._all_reduce(source, "MAX", self.process_group)
        self._source = int(source)

    def _shadow(self):
        """A step of the others: zeros for every bucket."""
        syncing, buffers = self._step_of_join(False)
        if buffers:
            self._broadcast(self._shared_buffers, self._source)
        if not syncing:
            return
        self._prepare()
        self._unused = set(self._names) if self.find_unused_parameters or self.static_graph else set()
        for bucket in self._buckets:
            bucket.flat.zero_()
            self._reduce(bucket)
        self._finish()

    def _end_of_join(self, is_last_joiner):
        """The model of a rank that has seen all steps, in all."""
        self._find_source(is_last_joiner)
        if self.process_group.size() > 1:
            self._broadcast([*self.module.parameters(), *self._shared_buffers], self._source)
        self._source, (self._op, self._share) = 0, self._plain

    def join_hook(self, divide_by_initial_world_size=True, **options):
        """For `wisp.distributed.algorithms.Join`."""
        from wisp.distributed.algorithms.join import make_hook

        self._divide_by_active = not divide_by_initial_world_size
        self._rebuilt = True  # a rank that may have seen no step can't tell the order of gradients
        return make_hook(self._shadow, self._end_of_join)

    @property
    def join_device(self):
        """The device of the parameters."""
        return next(iter(self._names)).device

    @property
    def join_process_group(self):
        """The group of the model."""
        return self.process_group

    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """A block in which ranks may have different numbers of batches; see `wisp.distributed.algorithms.Join`."""
        from wisp.distributed.algorithms import Join

        return Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size)

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients made by the forward passes of this block stay with their process, and are averaged with the next ones after it."""
        self.require_backward_grad_sync, before = False, self.require_backward_grad_sync
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def _get_ddp_logging_data(self):
        """What the wrapper was made with, as programs log it."""
        numbers = list(self.module.parameters())
        kinds = sorted({str(one.dtype).removeprefix("torch.") for one in numbers})
        settings = "broadcast_buffers find_unused_parameters gradient_as_bucket_view".split()
        return {
            "module_name": type(self.module).__name__,
            "device_ids": ", ".join(map(str, self.device_ids or [])),
            "dtypes": ", ".join(kinds),
            **{name: int(getattr(self, name)) for name in settings},
            "num_parameter_tensors": len(numbers),
            "total_parameter_size_bytes": sum(one.nbytes for one in numbers),
            "rank": self.process_group.rank(),
            "world_size": self.process_group.size(),
        }

    def _set_static_graph(self):
        """The same parameters are used in every step: those that get no gradient are looked for once."""
        self.static_graph = True

    def register_comm_hook(self, state, hook):
        """`hook(state, bucket)` instead of the average: it returns a Future of the tensor that replaces the bucket.
        wisp.distributed.algorithms.ddp_comm_hooks has some."""
        if self._comm_hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        self._comm_hook = state, hook

    def __getstate__(self):
        raise RuntimeError("DistributedDataParallel belongs to its process group and can't be copied or pickled: use model.module")


class _Reducer:
    def __init__(self, model):
        self._model = model

    def prepare_for_backward(self, outputs):
        """The next backward joins gradients; parameters that these outputs do not depend on count as ready ([]: none is looked for)."""
        model = self._model
        if model.process_group.size() > 1 or model._comm_hook is not None:
            model._check_finished()
            model._armed = True
            model._begin(outputs or None)


def _leaves(output):
    """The leaves that the tensors of a nested structure depend on."""
    stack, seen, leaves = [], set(), set()

    def collect(value):
        if isinstance(value, wisp.Tensor):
            if value.grad_fn is not None:
                stack.append(value.grad_fn)
            elif value.requires_grad:
                leaves.add(value)
            return
        if isinstance(value, dict):
            value = value.values()
        elif hasattr(value, "__dict__") and not isinstance(value, (type, list, tuple, set)):
            value = vars(value).values()
        if not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
            for item in value:
                collect(item)

    collect(output)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves.add(variable)
        stack.extend(following for following, _ in node.next_functions if following is not None)
    return leaves
