"""What a call in a compiled region was made into, as bars and a page."""

from wisp.viz._charts import Chart, _text
from wisp.viz._page import escape, page

__all__ = ["Fusions", "fusions"]

_STYLE = (
    "body{background:#fff;color:#27272a;font:14px system-ui,sans-serif}details{margin:6px 16px}summary{cursor:pointer}"
    "pre{font-size:12px;overflow-x:auto;padding:8px 12px;background:#f4f4f5;border-radius:6px}p{margin:6px 16px}"
    "@media (prefers-color-scheme:dark){body{background:#18181b;color:#e4e4e7}pre{background:#27272a}}"
)


class Fusions(Chart):
    """The programs of one call in a compiled region: bars of the bytes that each moves and that its operators would have moved; the
    page tells each program's steps, its time, and what it was run for."""

    def __init__(self, told):
        self.told = told
        programs = told.programs
        left, right, top, step = 24, 560, 58, 40
        most = max((p.one_by_one for p in programs), default=1) or 1
        parts = [_text(16, 44, _totals(told), "mono")]
        for i, p in enumerate(programs):
            y = top + i * step
            parts.append(_text(left, y + 11, f"{i + 1}. {_short(p.operators)}  {p.shape}"))
            for style, count in (("faint", p.one_by_one), ("full", p.bytes)):
                parts.append(f"<rect class='{style}' x='{left}' y='{y + 17}' width='{max(1, right * count / most):.1f}' height='10'/>")
            parts.append(_text(left + right * p.one_by_one / most + 8, y + 26, f"{_size(p.bytes)} of {_size(p.one_by_one)}", "mono"))
        super().__init__("compiled region", left + right + 160, top + step * len(programs) + 12, parts, programs)

    def html(self):
        """The bars, and below them each program with its steps, as a page."""
        parts = [f"<style>{_STYLE}</style><div style='overflow-x:auto'>{self.svg()}</div>"]
        for i, p in enumerate(self.told.programs):
            time = f", {1e6 * p.seconds:.0f} µs" if p.seconds else ""
            parts.append(
                f"<details><summary>{i + 1}. {escape(' · '.join(p.operators))} of {escape(p.shape)}: {_size(p.read)} read, "
                f"{_size(p.written)} written{time}</summary><p>{escape(p.reason)}</p><pre>{escape(chr(10).join(p.steps))}</pre></details>"
            )
        return page(self.title, "".join(parts))

    def __repr__(self):
        return f"Fusions({len(self.told.programs)} programs)"


def _totals(told):
    return (
        f"{told.operators} operators noted, {told.never_made} never made, {len(told.programs)} programs; "
        f"{_size(told.bytes)} moved instead of {_size(told.bytes_one_by_one)}"
    )


def _size(count):
    from wisp.compiler._explain import _size as size

    return size(count)


def _short(names, most=9):
    return " · ".join(names if len(names) <= most else [*names[: most - 2], "…", names[-1]])


def fusions(told):
    """What `wisp.compiler.explain` found out about a call: which operators became one program, how many bytes that saves, each
    program's steps and time, and the line that needed its values, before which nothing more could join it.

    >>> told = wisp.compiler.explain(lambda x: (x * 2 + 1).exp())(wisp.zeros(200, 100))
    >>> fusions(told)
    Fusions(1 programs)
    """
    return Fusions(told)
