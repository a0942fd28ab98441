"""The parameters of one `fully_shard` call: each rank keeps a part of every one, and all of them only while they are used.

    sharded ──gather──> gathering ──wait──> whole ──reshard──> sharded

A parameter is cut along dimension 0 into as many parts as there are ranks, the last ones padded. The parts of a unit lie one after the
other in one flat tensor per dtype, which is what an all-gather sends and what a reduce-scatter of gradients gives back.

The whole parameter is an object that lives on while its memory comes and goes: operators save the object for backward, and what
they find then is what was gathered again.
"""

import math

import wisp
from wisp.distributed import collectives
from wisp.distributed._work import Note
from wisp.distributed.tensor import DTensor, Replicate, Shard
from wisp.distributed.tensor._dtensor import DTensorParameter

_NOTE_LIMIT = 120  # letters of a header for which parameters got a gradient, four parameters a letter


def tensors_of(value, found=None):
    """The tensors of a nested structure."""
    found = [] if found is None else found
    if isinstance(value, wisp.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            tensors_of(item, found)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            tensors_of(item, found)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, wisp.nn.Module)):
        tensors_of(vars(value), found)
    return found


class _Parameter:
    """One parameter: where it is, its part and its whole."""

    def __init__(self, original, name, places, unit):
        self.name, self.places, self.shape = name, places, original.shape
        ranks, rank = unit.group.size(), unit.group.rank()
        self.rows = -(-original.shape[0] // ranks)
        self.row = math.prod(original.shape[1:])
        begin, end = Shard(0).rows(original.shape[0], ranks, rank)
        self.count, self.used = self.rows * self.row, (end - begin) * self.row  # elements of a part with padding, and of this rank's
        self.local_shape = (end - begin, *original.shape[1:])
        self.local = original.detach()[begin:end]
        self.requires_grad, self.dtype = original.requires_grad, original.dtype

    def cut(self, unit, flat):
        """Make the part, in its place in the flat tensor, the parameter that the module and optimizers see."""
        part = flat[self.offset : self.offset + self.used].view(self.local_shape)
        if self.local.device.type != "meta":
            part.copy_(self.local)
        self.local = None
        placements = (Shard(0),) if unit.mesh.ndim == 1 else (Replicate(), Shard(0))
        self.sharded = DTensorParameter._make(part, unit.mesh, placements, self.shape, self.requires_grad)
        self.whole = wisp.nn.Parameter(flat.new_empty(0, dtype=unit.compute_dtype(self.dtype)), self.requires_grad)
        self.hooked = False

    def adopt(self):
        """A module that got another part (load_state_dict with assign=True) keeps it."""
        module, name = self.places[0]
        found = module._parameters[name]
        if found is not self.sharded and isinstance(found, DTensor) and found._place[1:] == self.sharded._place[1:]:
            self.sharded = found
            self.show(found)

    def show(self, parameter):
        for module, name in self.places:
            module._parameters[name] = parameter


class _Kind:
    """The parameters of a unit that have one dtype, and their flat tensor."""

    def __init__(self, parameters):
        self.parameters = parameters
        at = 0
        for parameter in parameters:
            parameter.offset = at
            at += parameter.count
        self.total = at


class Unit:
    """What `fully_shard` keeps for a module (or several)."""

    def __init__(self, modules, mesh, reshard_after_forward, policy, offload, ignored):
        self.modules, self.mesh, self.policy, self.offload = modules, mesh, policy, offload
        self.group = mesh.get_group(mesh.ndim - 1)
        self.replicas = mesh.get_group(0) if mesh.ndim == 2 else None
        self.reshard_after_forward = reshard_after_forward
        self.reshard_after_backward = self.gradient_sync = self.all_reduce = self.gather_in_backward = True
        self.forward_prefetch = self.backward_prefetch = None
        self.divide_factor = None
        self.parameters = self._find(ignored)
        self.device = self._device()
        kinds = {}
        for parameter in self.parameters:
            kinds.setdefault(parameter.dtype, []).append(parameter)
        self.kinds = [_Kind(parameters) for parameters in kinds.values()]
        self.state, self.pending, self.reductions = "sharded", [], []
        self.left, self.manual, self.shown, self.before = 0, False, False, None
        with wisp.no_grad():
            for kind in self.kinds:
                self._cut(kind)
        self.trained, self.inputs_left, self.tree, self.used = [], 0, None, None
        self.partial = {}  # what was added up within parts, and waits for the replicas

    def _find(self, ignored):
        """The parameters of the modules that no other unit has, each once, with all of its places."""
        found, names = {}, {}
        for module in self.modules:
            for path, child in _modules_of_unit(module, self):
                for name, parameter in child._parameters.items():
                    if parameter is None or parameter in ignored or isinstance(parameter, DTensor):
                        continue
                    if getattr(parameter, "_is_sharded", False):
                        raise ValueError(
                            f"fully_shard: {path}{name} of {type(module).__name__} is shared with a module that was sharded "
                            "before. Shard a module that contains all uses of a shared parameter, and not the parts"
                        )
                    if parameter.dim() == 0:
                        raise ValueError(
                            f"fully_shard doesn't support scalar parameters. Change {path}{name} to a 1D tensor with numel equal to 1."
                        )
                    found.setdefault(parameter, []).append((child, name))
                    names.setdefault(parameter, path + name)
        for parameter in found:
            parameter._is_sharded = True
        return [_Parameter(parameter, names[parameter], places, self) for parameter, places in found.items()]

    def _device(self):
        first = self.parameters[0].local.device if self.parameters else wisp.device(self.mesh.device_type)
        if self.mesh.device_type == "cuda" and first.type == "cpu":
            return wisp.device("cuda", wisp.cuda.current_device())
        return first

    def compute_dtype(self, dtype):
        """The dtype in which a parameter is gathered and used."""
        return self.policy.param_dtype if self.policy.param_dtype is not None and dtype.is_floating_point else dtype

    def _cut(self, kind):
        device = wisp.device("cpu") if self.offload and self.device.type != "meta" else self.device
        kind.flat = wisp.zeros(kind.total, dtype=kind.parameters[0].dtype, device=device)
        for parameter in kind.parameters:
            parameter.cut(self, kind.flat)
            parameter.show(parameter.sharded)

    # ------------------------------------------------------------ parts and wholes
    def _source(self, kind):
        """What this rank sends: its parts, padded, in the dtype of computation. Parts that were moved elsewhere are collected."""
        flat = kind.flat
        for parameter in kind.parameters:
            local = wisp.Tensor.detach(parameter.sharded)
            if local.device != flat.device or local.dtype != flat.dtype:
                kind.flat = wisp.zeros(kind.total, dtype=local.dtype, device=local.device)
                return self._collect(kind)
            if parameter.used and local.data_ptr() != flat.data_ptr() + parameter.offset * flat.element_size():
                flat[parameter.offset : parameter.offset + parameter.used] = local.reshape(-1)
        return self._for_use(flat)

    def _collect(self, kind):
        """The module was moved or cast: another flat tensor, and parts that lie in it again."""
        for parameter in kind.parameters:
            local = wisp.Tensor.detach(parameter.sharded)
            part = kind.flat[parameter.offset : parameter.offset + parameter.used].view(parameter.local_shape)
            part.copy_(local)
            parameter.sharded.data, parameter.dtype = part, kind.flat.dtype
        if not self.offload:
            self.device = kind.flat.device
        return self._for_use(kind.flat)

    def _for_use(self, flat):
        return flat.to(device=self.device, dtype=self.compute_dtype(flat.dtype))

    def versions(self):
        """Changes when somebody writes to a part, or freezes it."""
        sharded = [parameter.sharded for parameter in self.parameters]
        return [(part._version, part.data_ptr(), part.requires_grad) for part in sharded]

    def gather(self):
        """Begin to bring the parameters together."""
        if self.state != "sharded" or not self.parameters:
            return
        for parameter in self.parameters:
            parameter.adopt()
        with wisp.no_grad():
            for kind in self.kinds:
                source = self._source(kind)
                if self.group.size() == 1:
                    self.pending.append((kind, source, None))
                    continue
                whole = source.new_empty(self.group.size() * kind.total)
                work = collectives.all_gather_into_tensor(whole, source, group=self.group, async_op=True)
                self.pending.append((kind, whole, work))
        self.before, self.state = self.versions(), "gathering"

    def unshard(self, current=True):
        """The whole parameters, in the module; `current`: not what they were before an optimizer has stepped."""
        if current and self.state != "sharded" and self.versions() != self.before:
            self.reshard()
        self.gather()
        if self.state == "gathering":
            self._receive()
        if not self.shown:
            self.shown = True
            for parameter in self.parameters:
                parameter.show(parameter.whole)

    def _receive(self):
        ranks = self.group.size()
        with wisp.no_grad():
            for kind, whole, work in self.pending:
                if work is not None:
                    work.wait()
                rows = whole.view(ranks, kind.total)
                for parameter in kind.parameters:
                    values = rows[:, parameter.offset : parameter.offset + parameter.count]
                    parameter.whole.data = values.reshape(ranks * parameter.rows, *parameter.shape[1:])[: parameter.shape[0]]
        self.pending, self.state = [], "whole"
        for parameter in self.parameters:
            if parameter.whole.requires_grad != parameter.sharded.requires_grad:
                parameter.whole.requires_grad_(parameter.sharded.requires_grad)
            if parameter.whole.requires_grad and not parameter.hooked:
                parameter.whole.register_post_accumulate_grad_hook(self._ready)
                parameter.hooked = True

    def hide(self):
        """The whole parameters wait for backward; the module has its parts, which others may change meanwhile."""
        if self.shown:
            self.shown = False
            for parameter in self.parameters:
                parameter.show(parameter.sharded)

    def reshard(self):
        """Let the whole parameters go."""
        if self.state == "gathering":
            self._receive()
        if self.state != "whole":
            return
        self.hide()
        self.state, self.manual = "sharded", False
        with wisp.no_grad():
            for parameter in self.parameters:
                parameter.whole.data = parameter.whole.new_empty(0)

    def write_back(self):
        """What was changed in the whole parameters goes to the parts."""
        with wisp.no_grad():
            for parameter in self.parameters:
                parameter.sharded.copy_(parameter.whole.detach().to(parameter.dtype))
        self.before = self.versions()

    # ------------------------------------------------------------ gradients
    def expect(self):
        """Backward is about to come through this unit: its parameters will get gradients."""
        if self.parameters and self.used != (self.versions() if self.state == "sharded" else self.before):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: some of "
                f"the parameters {names} of {type(self.modules[0]).__name__} were changed between forward and backward"
            )
        if not self.left:
            self.trained = [parameter for parameter in self.parameters if parameter.sharded.requires_grad]
            self.left, self.seen = len(self.trained), set()

    def _ready(self, whole):
        """A gradient is there (called by backward)."""
        if not self.left or id(whole) in self.seen:
            return
        self.seen.add(id(whole))
        self.left -= 1
        if not self.left:
            self.reduce()
            if len(self.trained) == len(self.parameters) or not self.inputs_left:
                self.release()
        elif self.group.pending:
            self.group.pending[0].is_completed()  # MPI goes on when it is asked

    def watch_inputs(self, args, kwargs):
        """Where some parameters are frozen, backward may need those after all others have their gradients: until the inputs have theirs."""
        if all(parameter.sharded.requires_grad for parameter in self.parameters):
            return
        tensors = [tensor for tensor in tensors_of((args, kwargs)) if tensor.requires_grad]
        for tensor in tensors:
            self.inputs_left += 1
            tensor.register_hook(self._input_done)
        self.inputs_left += not tensors  # nothing says when: at the end of backward

    def _input_done(self, grad):
        self.inputs_left -= 1
        if not self.inputs_left and not self.left:
            self.release()

    def release(self):
        """Backward has no more use for the whole parameters."""
        if self.reshard_after_backward:
            self.reshard()

    def reduce(self):
        """Begin to add up the gradients: each rank gets the average of its parts."""
        self.left = 0
        if not self.gradient_sync:
            return
        got = [parameter.whole.grad is not None for parameter in self.trained]
        if not got or not any(got) and self.group.size() == 1:
            return
        bits = f"{sum(1 << bit for bit, one in enumerate(got) if one):x}"
        note = Note(bits if len(bits) <= _NOTE_LIMIT else "")
        ranks = self.group.size()
        factor = self.divide_factor
        with wisp.no_grad():
            for kind in self.kinds:
                trained = [parameter for parameter in kind.parameters if parameter in self.trained]
                if not trained:
                    continue
                dtype = self.policy.reduce_dtype or self.compute_dtype(kind.parameters[0].dtype)
                total = sum(parameter.count for parameter in trained)
                flat = wisp.empty(ranks, total, dtype=dtype, device=self.device)
                at = 0
                for parameter in trained:
                    self._lay(flat[:, at : at + parameter.count], parameter.whole.grad, parameter)
                    parameter.whole.grad = None
                    at += parameter.count
                if factor:
                    flat.div_(factor)
                op = "SUM" if factor else "AVG"
                trained = [(parameter, self.trained.index(parameter)) for parameter in trained]
                if ranks == 1:
                    self.reductions.append((kind, trained, flat.view(-1), None, note))
                    continue
                mine = flat.new_empty(total)
                work = collectives.reduce_scatter_tensor(mine, flat, op, group=self.group, async_op=True, _note=note)
                self.reductions.append((kind, trained, mine, work, note))

    def _lay(self, target, grad, parameter):
        """The rows of a gradient, a part per rank, with zeros where there are none: the last parts may be short or empty."""
        if grad is None:
            target.zero_()
            return
        grad = grad.to_dense() if grad.layout is not wisp.strided else grad
        full, rest = divmod(parameter.shape[0], parameter.rows) if parameter.rows else (0, 0)
        if full:
            target[:full].view(full, parameter.rows, parameter.row).copy_(
                grad[: full * parameter.rows].reshape(full, parameter.rows, parameter.row)
            )
        if full < target.shape[0]:
            target[full:].zero_()
        if rest:
            target[full, : rest * parameter.row].copy_(grad[full * parameter.rows :].reshape(-1))

    def finish(self):
        """Wait for the reductions; the averages become gradients of the parts."""
        with wisp.no_grad():
            for kind, trained, mine, work, note in self.reductions:
                if work is not None:
                    work.wait()
                used = 0  # by any rank; too many parameters for a header count as used
                for bits in note.everyone:
                    used |= int(bits, 16) if bits else -1
                if self.replicas is not None and self.replicas.size() > 1:
                    if kind in self.partial:
                        before, bits = self.partial.pop(kind)
                        mine.add_(before)
                        used |= bits
                    if not self.all_reduce:
                        self.partial[kind] = mine, used
                        continue
                    collectives.all_reduce(mine, "AVG" if not self.divide_factor else "SUM", self.replicas)
                at = 0
                for parameter, bit in trained:
                    if used >> bit & 1:
                        self._give(parameter, mine[at : at + parameter.used])
                    at += parameter.count
        self.reductions = []

    def _give(self, parameter, values):
        sharded = parameter.sharded
        grad = values.view(parameter.local_shape).to(device=sharded.device, dtype=sharded.dtype)
        if sharded.grad is not None:
            wisp.Tensor.add_(sharded.grad, grad)
        else:
            sharded.grad = sharded._like(grad)


def _modules_of_unit(module, unit):
    """A module and those below it that belong to no other unit, with their paths."""
    seen = set()

    def walk(module, path):
        if module in seen:
            return
        seen.add(module)
        yield path, module
        for name, child in module._modules.items():
            if child is not None and getattr(child, "_fsdp_unit", None) in (None, unit):
                yield from walk(child, f"{path}{name}.")

    yield from walk(module, "")
