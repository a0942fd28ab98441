"""Where time and memory go: `profile`, with PyTorch's API.

    >>> import wisp
    >>> from wisp.profiler import ProfilerActivity, profile, record_function
    >>> x = wisp.randn(64, 64)
    >>> with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
    ...     with record_function("my part"):
    ...         y = (x @ x).relu().sum()
    >>> sorted(row.key for row in prof.key_averages())
    ['matmul', 'my part', 'relu', 'sum']

`print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))` shows the dearest operators,
`prof.export_chrome_trace("trace.json")` writes a timeline for chrome://tracing or ui.perfetto.dev, and
`wisp.viz.timeline(prof)` draws it. While no profiler runs, a call of an operator pays for one test of a number.
"""

import enum
import gzip
import json
import os
import socket
import sys
import time
import warnings

from wisp import _core, _reference
from wisp.profiler._events import EventList, FunctionEvent, FunctionEventAvg, chrome_trace, read_events
from wisp.profiler._events import bytes_text as _format_memory  # noqa: F401 (libraries write their tables with it)
from wisp.profiler._ranges import record_function

__all__ = [
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class ProfilerActivity(enum.Enum):
    """What is watched: the CPU's side, and with CUDA the kernels of the GPU; asking for others changes nothing."""

    CPU = 0
    XPU = 1
    CUDA = 2
    MTIA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What the profiler does in a step, as a schedule says."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities():
    """The activities that can be watched here: `{ProfilerActivity.CPU}`, and CUDA's where there is a GPU."""
    gpu = _core._operators["_cuda"]["device_count"]() > 0
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA} if gpu else {ProfilerActivity.CPU}


def kineto_available():
    """Whether `profile` works: always."""
    return True


def _default_schedule_fn(step):
    return ProfilerAction.RECORD


def schedule(*, wait, warmup, active, repeat=0, skip_first=0, skip_first_wait=0):
    """A function from step to action: after `skip_first` steps, in cycles of `wait` idle, `warmup` and `active` steps.

    >>> [schedule(wait=1, warmup=1, active=2, repeat=1)(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ValueError(
            f"schedule(): expected wait, warmup, repeat, skip_first >= 0 and active > 0, got wait={wait}, "
            f"warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}"
        )
    if warmup == 0:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results")
    cycle = wait + warmup + active

    def action(step):
        step -= skip_first
        if step >= 0 and skip_first_wait:
            step += wait  # the first cycle does not wait
        if step < 0 or (repeat > 0 and step // cycle >= repeat):
            return ProfilerAction.NONE
        at = step % cycle
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == cycle - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(dir_name, worker_name=None, use_gzip=False):
    """An `on_trace_ready` that writes each trace into a folder, under the name that TensorBoard's profiler plugin looks for.

    >>> import glob, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with profile(on_trace_ready=tensorboard_trace_handler(folder, "me")) as prof:
    ...     y = wisp.ones(3) + 1
    >>> len(glob.glob(folder + "/me.*.pt.trace.json"))
    1
    """

    def handler(prof):
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")))

    return handler


def _watch_optimizers():
    """Ranges for the steps of optimizers, by hooks that are there only while a profiler runs."""
    from wisp.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    open_ranges = []

    def before(optimizer, args, kwargs):
        name = type(optimizer).__name__
        open_ranges.append(record_function(f"Optimizer.step#{name}.step").__enter__())

    def after(optimizer, args, kwargs):
        if open_ranges:
            open_ranges.pop().__exit__()

    return [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]


class _watch_loaders:
    """Ranges for the wait for batches: the iterators of loaders have another `__next__` while a profiler runs."""

    def __init__(self):
        from wisp.utils.data.dataloader import _Iterator

        self.kind, self.plain = _Iterator, _Iterator.__next__
        plain = self.plain

        def watched(iterator):
            with record_function(f"enumerate(DataLoader)#{type(iterator).__name__}.__next__"):
                return plain(iterator)

        _Iterator.__next__ = watched

    def remove(self):
        self.kind.__next__ = self.plain


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile:
    """Records what happens inside: `with profile(...) as prof: ...`.

    `record_shapes` keeps the shapes of arguments, `profile_memory` the memory that operators take and give back, `with_stack` the
    Python lines they were called from, `with_modules` the modules, `with_flops` estimates the work of products.
    With a `schedule`, call `prof.step()` after each step of training; `on_trace_ready(prof)` is called for every recorded cycle.

    >>> with profile(profile_memory=True) as prof:
    ...     y = wisp.zeros(1000).exp()
    >>> [row.cpu_memory_usage >= 4000 for row in prof.key_averages() if row.key == "exp"]
    [True]
    """

    def __init__(
        self,
        *,
        activities=None,
        schedule=None,
        on_trace_ready=None,
        record_shapes=False,
        profile_memory=False,
        with_stack=False,
        with_flops=False,
        with_modules=False,
        experimental_config=None,
        execution_trace_observer=None,
        acc_events=False,
        use_cuda=None,
        custom_trace_id_callback=None,
    ):
        self.activities = set(activities) if activities else supported_activities()
        for activity in self.activities:
            if not isinstance(activity, ProfilerActivity):
                raise ValueError(f"profile(): activities must be of ProfilerActivity, got {activity!r}")
        self.schedule = schedule or _default_schedule_fn
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes or with_flops
        self.profile_memory, self.with_stack, self.with_flops, self.with_modules = profile_memory, with_stack, with_flops, with_modules
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.metadata = {}
        self._events = None
        self._running = False
        self._handles = []
        self._step_range = None

    # --- running
    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Begin with the action of step 0."""
        self.current_action = self.schedule(self.step_num)
        if self.current_action in _RECORDING:
            self._start_trace()
        self._enter_step()

    def stop(self):
        """End, and hand over what was recorded to `on_trace_ready`."""
        self._leave_step()
        if self._running:
            self._stop_trace()
            self._ready()

    def step(self):
        """Say that a step of training is over: the schedule decides what happens in the next one."""
        self._leave_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if self._running and (before == ProfilerAction.RECORD_AND_SAVE or self.current_action not in _RECORDING):
            self._stop_trace()
            if before == ProfilerAction.RECORD_AND_SAVE:
                self._ready()
        if not self._running and self.current_action in _RECORDING:
            self._start_trace()
        self._enter_step()

    def _enter_step(self):
        if self.record_steps and self._running:
            self._step_range = record_function(f"ProfilerStep#{self.step_num}")
            self._step_range.__enter__()

    def _leave_step(self):
        if self._step_range is not None:
            self._step_range.__exit__(None, None, None)
            self._step_range = None

    def _start_trace(self):
        _core._profiler_start(
            self.record_shapes, self.with_stack, self.with_modules or self.with_stack, ProfilerActivity.CUDA in self.activities
        )
        self._running = True
        self._handles = _watch_optimizers() if "wisp.optim" in sys.modules else []
        if "wisp.utils.data.dataloader" in sys.modules:
            self._handles.append(_watch_loaders())

    def _stop_trace(self):
        self._running = False
        for handle in self._handles:
            handle.remove()
        kernels = _core._profiler_kernels()
        self._events = read_events(_core._profiler_stop(), self.with_flops, self.profile_memory, kernels)

    def _ready(self):
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    # --- results
    def events(self):
        """Every recorded event, in the order of their starts."""
        if self._events is None:
            raise RuntimeError("the profiler has recorded nothing yet: leave the `with profile(...)` block (or call stop()) first")
        return self._events

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0, group_by_overload_name=False):
        """Sums by operator (and by shapes or by the innermost lines of the stack); see `EventList.table`."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path):
        """Write the timeline as Chrome's trace format (gzipped if the name ends in .gz)."""
        text = json.dumps(chrome_trace(self.events(), self.metadata, self.profile_memory))
        opened = gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w")
        with opened as file:
            file.write(text)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write stacks with their times, a line each, as flame graph tools read them (needs `with_stack=True`)."""
        self.events().export_stacks(path, metric)

    def export_memory_timeline(self, path, device=None):
        """Write live bytes over time: HTML by the name's end .html, else JSON [[microseconds], [bytes]]."""
        if str(path).endswith(".html"):
            from wisp import viz

            viz.timeline(self).save(path)
            return
        points = self.events().memory_points()
        with gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w") as file:
            json.dump([[t for t, _ in points], [b for _, b in points]], file)

    def add_metadata(self, key, value):
        """Put a text into the trace file."""
        self.metadata[key] = str(value)

    def add_metadata_json(self, key, value):
        """Put a JSON text into the trace file."""
        self.metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def toggle_collection_dynamic(self, enable, activities):
        """Pause or resume recording."""
        if enable and not self._running:
            self._start_trace()
        elif not enable and self._running:
            before = self._events
            self._stop_trace()
            if before is not None:
                self._events = EventList([*before, *self._events], self.profile_memory)

    def _repr_html_(self):
        from wisp import viz

        return viz.timeline(self)._repr_html_()


_reference.attach(__name__, globals())
