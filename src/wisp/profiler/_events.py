"""What a profile recorded: events, their sums by operator, the table and the trace file."""

import json
import math
import os

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "chrome_trace", "read_events"]

_SORTABLE = """
    cpu_time cpu_time_total self_cpu_time_total cpu_memory_usage self_cpu_memory_usage count cuda_time cuda_time_total
    self_cuda_time_total cuda_memory_usage self_cuda_memory_usage device_time device_time_total self_device_time_total
    device_memory_usage self_device_memory_usage""".split()


class Interval:
    """From start to end, in microseconds."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def elapsed_us(self):
        return self.end - self.start

    def __repr__(self):
        return f"Interval(start={self.start:.3f}, end={self.end:.3f})"


class _Figures:
    """What events and sums of events have in common."""

    device_time_total = self_device_time_total = device_memory_usage = self_device_memory_usage = 0
    cuda_memory_usage = self_cuda_memory_usage = 0
    is_async = is_remote = is_legacy = False
    node_id = -1
    device_type = "CPU"

    @property
    def cpu_time(self):
        """Microseconds per call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self):
        """Microseconds of the GPU per call."""
        return self.device_time_total / self.count if self.count else 0.0

    cuda_time = device_time
    cuda_time_total = property(lambda self: self.device_time_total)
    self_cuda_time_total = property(lambda self: self.self_device_time_total)

    @property
    def cpu_time_total_str(self):
        return time_text(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self):
        return time_text(self.self_cpu_time_total)

    @property
    def cpu_time_str(self):
        return time_text(self.cpu_time)


class FunctionEvent(_Figures):
    """One call of an operator, one run of a backward node, one module's call, or one range of the user's own."""

    def __init__(
        self,
        id,
        name,
        thread,
        start_us,
        end_us,
        *,
        kind="op",
        memory=(0, 0),
        sequence_nr=-1,
        input_shapes=None,
        stack=None,
        node_id=-1,
        is_async=False,
        is_remote=False,
    ):
        self.id, self.name, self.kind, self.thread = id, name, kind, thread
        self.node_id, self.is_async, self.is_remote = node_id, is_async, is_remote
        self.time_range = Interval(start_us, end_us)
        self.memory_before, self.memory_after = memory
        self.sequence_nr = sequence_nr
        self.input_shapes = [_dims(entry) for entry in input_shapes or ()]
        self.input_dtypes = [str(entry[1]) if isinstance(entry, tuple) else "" for entry in input_shapes or ()]
        self.stack = [
            f"{os.path.relpath(code.co_filename) if code.co_filename.startswith(os.getcwd()) else code.co_filename}({line}): {code.co_name}"
            for code, line in stack or ()
        ]
        self.count = 1
        self.cpu_parent, self.cpu_children = None, []
        self.kernels = []  # (name, start, microseconds, device) of what it launched itself
        self.flops = None
        self.is_user_annotation = kind == "user"
        self.concrete_inputs, self.kwinputs = [], {}

    @property
    def key(self):
        return self.name

    @property
    def cpu_time_total(self):
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self):
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def self_device_time_total(self):
        return sum(length for _, _, length, _ in self.kernels)

    @property
    def device_time_total(self):
        return self.self_device_time_total + sum(child.device_time_total for child in self.cpu_children)

    @property
    def cpu_memory_usage(self):
        return self.memory_after - self.memory_before

    @property
    def self_cpu_memory_usage(self):
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    def __repr__(self):
        return (
            f"<FunctionEvent id={self.id} name={self.name} thread={self.thread} cpu_time={time_text(self.cpu_time_total)} "
            f"start_us={self.time_range.start:.3f} end_us={self.time_range.end:.3f} input_shapes={self.input_shapes}>"
        )


class FunctionEventAvg(_Figures):
    """The sum of the events of one operator."""

    def __init__(self):
        self.key, self.count, self.kind = None, 0, None
        self.cpu_time_total = self.self_cpu_time_total = self.device_time_total = self.self_device_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.input_shapes, self.stack, self.flops = [], [], 0
        self.cpu_children, self.cpu_parent, self.is_user_annotation = [], None, False

    def add(self, other):
        if self.key is None:
            self.key, self.kind, self.input_shapes, self.stack = other.key, other.kind, other.input_shapes, other.stack
            self.is_user_annotation = other.is_user_annotation
        self.count += other.count
        if not _within_its_like(other):  # that time is in the sum already
            self.cpu_time_total += other.cpu_time_total
            self.device_time_total += other.device_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.self_device_time_total += other.self_device_time_total
        self.cpu_memory_usage += other.cpu_memory_usage
        self.self_cpu_memory_usage += other.self_cpu_memory_usage
        self.flops += other.flops or 0
        return self

    __iadd__ = add

    def __repr__(self):
        return (
            f"<FunctionEventAvg key={self.key} count={self.count} cpu_time_total={self.cpu_time_total_str} "
            f"self={self.self_cpu_time_total_str}>"
        )


def _within_its_like(event):
    around = event.cpu_parent
    while around is not None and around.key != event.key:
        around = around.cpu_parent
    return around is not None


class EventList(list):
    """Events, or sums of them, with tables and files made of them."""

    def __init__(self, events=(), profile_memory=False, whole=None):
        super().__init__(events)
        self.profile_memory = profile_memory
        self._whole = whole  # of the events that these are sums of: modules have time, and no row

    @property
    def self_cpu_time_total(self):
        """Microseconds in all."""
        return sum(event.self_cpu_time_total for event in self) if self._whole is None else self._whole

    def key_averages(self, group_by_input_shapes=False, group_by_stack_n=0, group_by_overload_name=False):
        """Sums by name, and by shapes or the innermost lines of the stack if asked for. Modules are left out: what they
        do is their operators' time."""
        groups = {}
        for event in self:
            if event.kind != "module":
                key = (event.key, str(event.input_shapes) if group_by_input_shapes else "", tuple(event.stack[:group_by_stack_n]))
                groups.setdefault(key, FunctionEventAvg()).add(event)
        for (_, shapes, stack), row in groups.items():
            row.input_shapes = row.input_shapes if shapes else []
            row.stack = list(stack)
        return EventList(groups.values(), self.profile_memory, self.self_cpu_time_total)

    def total_average(self):
        """The sum of everything."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
        total.key = None
        return total

    def table(
        self,
        sort_by=None,
        row_limit=100,
        max_src_column_width=75,
        max_name_column_width=55,
        max_shapes_column_width=80,
        header=None,
        top_level_events_only=False,
        time_unit=None,
    ):
        """The events as a table, the dearest first by `sort_by`: "cpu_time_total", "self_cpu_time_total", "cpu_time",
        "cpu_memory_usage", "self_cpu_memory_usage", "count"."""
        rows = [row for row in self if not top_level_events_only or row.cpu_parent is None]
        if sort_by is not None:
            if sort_by not in _SORTABLE:
                raise ValueError(f"table(): sort_by must be one of {', '.join(_SORTABLE)}; got {sort_by!r}")
            rows.sort(key=lambda row: getattr(row, sort_by), reverse=True)
        whole = self.self_cpu_time_total

        def share(value):
            return f"{100 * value / whole:.2f}%" if whole else "0.00%"

        columns = [
            ("Name", "<", lambda row: _shortened(row.key, max_name_column_width)),
            ("Self CPU %", ">", lambda row: share(row.self_cpu_time_total)),
            ("Self CPU", ">", lambda row: row.self_cpu_time_total_str),
            ("CPU total %", ">", lambda row: share(row.cpu_time_total)),
            ("CPU total", ">", lambda row: row.cpu_time_total_str),
            ("CPU time avg", ">", lambda row: row.cpu_time_str),
        ]
        on_device = sum(row.self_device_time_total for row in self)
        if on_device:
            columns += [
                ("Self CUDA", ">", lambda row: time_text(row.self_device_time_total)),
                ("Self CUDA %", ">", lambda row: f"{100 * row.self_device_time_total / on_device:.2f}%"),
                ("CUDA total", ">", lambda row: time_text(row.device_time_total)),
                ("CUDA time avg", ">", lambda row: time_text(row.device_time)),
            ]
        if self.profile_memory:
            columns += [
                ("CPU Mem", ">", lambda row: bytes_text(row.cpu_memory_usage)),
                ("Self CPU Mem", ">", lambda row: bytes_text(row.self_cpu_memory_usage)),
            ]
        columns.append(("# of Calls", ">", lambda row: str(row.count)))
        if any(row.input_shapes for row in rows):
            columns.append(("Input Shapes", "<", lambda row: _shortened(str(row.input_shapes), max_shapes_column_width)))
        if any(row.stack for row in rows):
            columns.append(("Source Location", "<", lambda row: _shortened(row.stack[0] if row.stack else "", max_src_column_width, False)))
        if any(row.flops for row in rows):
            columns.append(("Total MFLOPs", ">", lambda row: f"{row.flops / 1e6:,.3f}" if row.flops else "--"))
        rows = rows if row_limit is None or row_limit < 0 else rows[:row_limit]
        cells = [[text(row) for _, _, text in columns] for row in rows]
        widths = [max([len(title)] + [len(line[i]) for line in cells]) for i, (title, _, _) in enumerate(columns)]
        rule = "  ".join("-" * width for width in widths)

        def line(texts):
            return "  ".join(f"{text:{side}{width}}" for text, (_, side, _), width in zip(texts, columns, widths)).rstrip()

        lines = [rule, line([title for title, _, _ in columns]), rule, *map(line, cells), rule, f"Self CPU time total: {time_text(whole)}"]
        if on_device:
            lines.append(f"Self CUDA time total: {time_text(on_device)}")
        return "\n".join(([header] if header else []) + lines) + "\n"

    def __str__(self):
        return self.table()

    def memory_points(self):
        """(microseconds, live bytes) at the start and end of every event."""
        return sorted(
            point for event in self for point in ((event.time_range.start, event.memory_before), (event.time_range.end, event.memory_after))
        )

    def export_chrome_trace(self, path):
        """Write the timeline as Chrome's trace format."""
        with open(path, "w") as file:
            json.dump(chrome_trace(self, {}, self.profile_memory), file)

    def export_stacks(self, path, metric="self_cpu_time_total"):
        """Write "outer;inner;operator microseconds" lines."""
        if metric not in ("self_cpu_time_total", "self_cuda_time_total", "self_device_time_total"):
            raise ValueError(f"export_stacks(): unknown metric {metric!r}; expected self_cpu_time_total")
        totals = {}
        for event in self:
            if event.stack and event.kind != "module":
                key = ";".join(text.replace(" ", "_") for text in reversed(event.stack)) + ";" + event.name.replace(" ", "_")
                totals[key] = totals.get(key, 0) + getattr(event, metric)
        with open(path, "w") as file:
            file.writelines(f"{key} {int(value)}\n" for key, value in totals.items())


def _shortened(text, width, keep_start=True):
    if width is None or len(text) <= width:
        return text
    return text[: width - 3] + "..." if keep_start else "..." + text[3 - width :]


def _dims(entry):
    """Of one argument: its shape; of a list of tensors: theirs; of anything else []."""
    if isinstance(entry, tuple):
        return list(entry[0])
    return [_dims(part) for part in entry] if isinstance(entry, list) else []


def time_text(microseconds):
    """1234.5 -> '1.234ms'."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(microseconds) >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


def bytes_text(count):
    """4096 -> '4.00 KB'."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def _flops(name, shapes):
    """An estimate from the shapes of the arguments, for the operators where these say enough; else None."""
    name = name.rstrip("_")
    shapes = [shape for shape in shapes if shape and all(isinstance(d, int) for d in shape)]
    if name in ("addmm", "baddbmm") and len(shapes) >= 3:
        shapes, name = shapes[1:], "matmul"
    if name in ("mm", "bmm", "matmul") and len(shapes) >= 2:
        a, b = shapes[:2]
        return 2 * math.prod(a) * (b[-1] if len(b) > 1 else 1)
    if name == "linear" and len(shapes) >= 2:
        return 2 * math.prod(shapes[0]) * math.prod(shapes[1][:-1])
    if name in ("add", "sub", "mul", "div") and shapes:
        return max(map(math.prod, shapes))
    return None


# Questions about a tensor, not work on it.
_QUIET = frozenset(
    ("is_floating_point", "is_complex", "is_tensor", "is_nonzero", "is_anomaly_enabled", "result_type", "numel", "dim", "is_contiguous")
)


def read_events(rows, with_flops, profile_memory, kernels=()):
    """The core's rows as events, linked with their parents and with the kernels that they launched."""
    made = []
    events = EventList(profile_memory=profile_memory)
    for number, (name, kind, thread, start, end, parent, before, after, sequence, shapes, stack) in enumerate(rows):
        if kind == "op" and (name in _QUIET or name.startswith(("_autocast", "_set_", "_live"))):
            made.append(None)
            continue
        if kind == "module":
            name = "nn.Module: " + name
        event = FunctionEvent(
            number,
            name,
            thread,
            start / 1000,
            end / 1000,
            kind=kind,
            memory=(before, after),
            sequence_nr=sequence,
            input_shapes=shapes,
            stack=stack,
        )
        if with_flops and kind == "op":
            event.flops = _flops(name, event.input_shapes)
        made.append(event)
        events.append(event)
        around = made[parent] if parent >= 0 else None
        if around is not None:
            event.cpu_parent = around
            around.cpu_children.append(event)
    for name, start, length, owner, device in kernels:
        if 0 <= owner < len(made) and made[owner] is not None:
            made[owner].kernels.append((name, start / 1000, length / 1000, device))
    return events


_CATEGORIES = {"op": "cpu_op", "backward": "cpu_op", "user": "user_annotation", "module": "python_function"}


def chrome_trace(events, metadata, memory):
    """The trace as an object for JSON: spans, arrows from forward calls to their backward nodes, and live memory as a curve."""
    process = os.getpid()
    rows = [{"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "python (wisp)"}}]
    made_by = {}
    for event in events:
        arguments = {"External id": event.id}
        if event.input_shapes:
            arguments |= {"Input Dims": event.input_shapes, "Input type": event.input_dtypes}
        if memory:
            arguments["Bytes"] = event.cpu_memory_usage
        if event.kind == "backward":
            arguments["Sequence number"] = event.sequence_nr
        if event.stack:
            arguments["Call stack"] = ";".join(event.stack)
        span = {
            "ph": "X",
            "cat": _CATEGORIES[event.kind],
            "name": event.name,
            "pid": process,
            "tid": event.thread,
            "ts": event.time_range.start,
            "dur": event.cpu_time_total,
            "args": arguments,
        }
        rows.append(span)
        rows += [
            {
                "ph": "X",
                "cat": "kernel",
                "name": name,
                "pid": device,
                "tid": "stream",
                "ts": start,
                "dur": length,
                "args": {"External id": event.id, "device": device},
            }
            for name, start, length, device in event.kernels
        ]
        if event.kind == "op":
            made_by[event.sequence_nr] = span
        elif event.kind == "backward" and event.sequence_nr in made_by:
            forward = made_by[event.sequence_nr]
            flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": event.sequence_nr, "pid": process}
            rows.append({"ph": "s", **flow, "tid": forward["tid"], "ts": forward["ts"]})
            rows.append({"ph": "f", "bp": "e", **flow, "tid": event.thread, "ts": event.time_range.start})
    rows += [
        {"ph": "C", "name": "live memory", "pid": process, "tid": 0, "ts": at, "args": {"bytes": count}}
        for at, count in (EventList.memory_points(events) if memory else ())
    ]
    return {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": rows, **metadata}
