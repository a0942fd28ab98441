"""A profile as a timeline: operators over time, and live memory below; timeline.js zooms."""

from wisp.profiler._events import time_text
from wisp.viz._page import Picture, bytes_text, escape, page, read

__all__ = ["Timeline", "timeline"]

_WIDTH, _ROW, _MEMORY, _LIMIT = 1160, 19, 90, 6000
_KINDS = {  # what the legend says of it, and its colour
    "op": ("operators", "#93c5fd"),
    "backward": ("backward", "#fda4af"),
    "module": ("modules", "#ddd6fe"),
    "user": ("ranges", "#d4d4d8"),
    "wait": ("waits: data, values, copies", "#f97316"),
}
_OPERATORS = ("#93c5fd", "#86efac", "#fcd34d", "#a5f3fc", "#bef264", "#67e8f9", "#7dd3fc")
_WAITS = {"item", "tolist", "to", "cpu", "cuda", "copy_", "numpy"}


def _kind(event):
    """What an event counts as: waiting for data, for the device or for a copy is told apart from work."""
    if event.name.startswith("enumerate(DataLoader)") or event.kind == "op" and event.name in _WAITS:
        return "wait"
    return event.kind


class Timeline(Picture):
    """A drawn profile: `.svg()`, `.html()` (zoom with the wheel, drag to move), `.save(path)`."""

    title = "timeline"

    def __init__(self, events):
        events = list(events)
        self.left_out = max(0, len(events) - _LIMIT)
        if self.left_out:  # the longest tell most
            shortest = sorted((event.cpu_time_total for event in events), reverse=True)[_LIMIT - 1]
            events = [event for event in events if event.cpu_time_total >= shortest][:_LIMIT]
        self.events = events
        self.start = min((event.time_range.start for event in events), default=0.0)
        self.end = max((event.time_range.end for event in events), default=1.0)
        self.end = max(self.end, self.start + 1e-3)
        self._rows = {}
        threads, depth_of = {}, {}
        for event in events:
            depth = depth_of[event] = depth_of.get(event.cpu_parent, -1) + 1
            threads[event.thread] = max(threads.get(event.thread, 0), depth + 1)
        self.threads, y = [], 30
        for thread, depth in threads.items():
            self.threads.append((thread, y))
            for event in events:
                if event.thread == thread:
                    self._rows[event] = y + 16 + depth_of[event] * _ROW
            y += 16 + depth * _ROW + 12
        self.memory_top = y + 10
        self._tall = self.memory_top + _MEMORY + 34
        self.height = self._tall + 64  # with the toolbar of the page
        self.kinds = [kind for kind in _KINDS if kind in {_kind(event) for event in events}]

    def _x(self, time):
        return (time - self.start) / (self.end - self.start) * _WIDTH

    def _event(self, event):
        x, y = self._x(event.time_range.start), self._rows[event]
        width = max(0.4, self._x(event.time_range.end) - x)
        kind = _kind(event)
        colour = _OPERATORS[sum(map(ord, event.name)) % len(_OPERATORS)] if kind == "op" else _KINDS[kind][1]
        tip = [
            f"{event.name}: {time_text(event.cpu_time_total)}, {time_text(event.self_cpu_time_total)} of its own",
            f"memory {'+' if event.cpu_memory_usage >= 0 else '−'}{bytes_text(abs(event.cpu_memory_usage))}",
        ]
        if event.input_shapes:
            tip.append(f"shapes {event.input_shapes}")
        if event.stack:
            tip.append(event.stack[0])
        label = event.name if len(event.name) * 6.2 + 6 < width else ""
        return (
            f"<g class='event' data-start='{event.time_range.start - self.start:.3f}' data-time='{event.cpu_time_total:.3f}' "
            f"data-name='{escape(event.name)}' data-kind='{kind}'><title>{escape(chr(10).join(tip))}</title>"
            f"<rect x='{x:.2f}' y='{y}' width='{width:.2f}' height='{_ROW - 2}' rx='2' fill='{colour}'/>"
            f"<text x='{x + 4:.2f}' y='{y + 12}'>{escape(label)}</text></g>"
        )

    def _memory(self):
        """Live bytes at the starts and ends of operators, as an area; points are in microseconds and pixels."""
        points = sorted(
            point
            for event in self.events
            for point in ((event.time_range.start, event.memory_before), (event.time_range.end, event.memory_after))
        )
        most = max((count for _, count in points), default=0)
        least = min((count for _, count in points), default=0)
        tall = max(1, most - least)
        base = self.memory_top + _MEMORY
        path = [(0.0, base)]
        for time, count in points:
            path += [(time - self.start, path[-1][1]), (time - self.start, base - (count - least) / tall * (_MEMORY - 14))]
        path.append((self.end - self.start, base))
        data = " ".join(f"{t:.2f},{y:.1f}" for t, y in path)
        drawn = " ".join(f"{self._x(t + self.start):.2f},{y:.1f}" for t, y in path)
        return (
            f"<text class='head' x='4' y='{self.memory_top}'>live memory: {bytes_text(least)} to {bytes_text(most)}</text>"
            f"<polygon class='memory' data-points='{data}' points='{drawn}'/>"
        )

    def svg(self):
        """The picture as the text of an SVG."""
        style = (
            "text{font:11px system-ui,'DejaVu Sans',sans-serif;fill:#27272a;pointer-events:none}.head{fill:#71717a}.ground{fill:#fff}"
            ".event rect{stroke:#0002}.event:hover rect{stroke:#2563eb;stroke-width:2}.memory{fill:#bfdbfe;stroke:#3b82f6}"
            ".grid{stroke:#e4e4e7}.dim{opacity:.2}.current rect{stroke:#b45309;stroke-width:2.5}"
            "@media (prefers-color-scheme:dark){.ground{fill:#18181b}.head,.legend text{fill:#a1a1aa}.grid{stroke:#33333a}"
            ".event rect{fill-opacity:.8}.event text{fill:#09090b}.memory{fill:#1e3a5f}.current rect{stroke:#fde68a}}"
        )
        span = self.end - self.start
        ticks = "".join(
            f"<line class='grid' x1='{_WIDTH * i / 8:.1f}' x2='{_WIDTH * i / 8:.1f}' y1='18' y2='{self._tall - 24}'/>"
            f"<text class='head tick' x='{_WIDTH * i / 8 + 3:.1f}' y='14'>{time_text(span * i / 8)}</text>"
            for i in range(8)
        )
        heads = "".join(f"<text class='head' x='4' y='{y + 8}'>thread {thread}</text>" for thread, y in self.threads)
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' class='timeline' width='{_WIDTH}' height='{self._tall}' data-span='{span:.3f}' "
            f"viewBox='0 0 {_WIDTH} {self._tall}'><style>{style}</style><rect class='ground' width='{_WIDTH}' height='{self._tall}'/>"
            f"{ticks}{heads}{''.join(map(self._event, self.events))}{self._memory()}{self._legend()}</svg>"
        )

    def _legend(self):
        parts, x, y = [], 4, self._tall - 8
        for kind in self.kinds:
            name, colour = _KINDS[kind]
            parts.append(
                f"<rect x='{x}' y='{y - 9}' width='11' height='11' rx='3' fill='{colour}'/><text x='{x + 16}' y='{y}'>{name}</text>"
            )
            x += 34 + 6.4 * len(name)
        return f"<g class='legend'>{''.join(parts)}</g>"

    def html(self):
        """The picture as a page: the wheel zooms into time, dragging moves, the legend's names switch kinds of events off and on."""
        legend = "".join(
            f"<button class='kind' data-kind='{kind}' title='show or hide'><i style='background:{_KINDS[kind][1]}'></i>"
            f"{_KINDS[kind][0]}</button>"
            for kind in self.kinds
        )
        left_out = f" · {self.left_out:,} shorter ones are left out" if self.left_out else ""
        facts = f"{len(self.events):,} events in {time_text(self.end - self.start)}{left_out}"
        body = (
            read("timeline.html")
            .replace("{{bar}}", read("bar.css"))
            .replace("{{legend}}", legend)
            .replace("{{facts}}", escape(facts))
            .replace("{{svg}}", self.svg())
            .replace("{{script}}", read("timeline.js"))
        )
        return page(self.title, body)

    def __repr__(self):
        return f"Timeline({len(self.events)} events, {time_text(self.end - self.start)})"


def timeline(profile):
    """The timeline of a `wisp.profiler.profile`: what ran when, within what, and how much memory was live.

    >>> import wisp
    >>> with wisp.profiler.profile() as prof:
    ...     y = wisp.ones(3).exp().sum()
    >>> len(timeline(prof).events)
    3
    """
    return Timeline(profile.events())
