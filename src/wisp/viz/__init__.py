"""Seeing: graphs, summaries, gradients, activations and timelines as SVG and HTML, with nothing else to install.

    >>> import wisp
    >>> from wisp import nn, viz
    >>> x = wisp.ones(3, requires_grad=True)
    >>> picture = viz.graph((x * x).sum())
    >>> picture.save("graph.html")  # doctest: +SKIP

In a notebook the results show themselves.
"""

from wisp import _reference
from wisp.viz._charts import Chart, activations, gradient_flow
from wisp.viz._collect import trace
from wisp.viz._curves import Curves, curves
from wisp.viz._display import image, module_html, tensor_html
from wisp.viz._fusion import Fusions, fusions
from wisp.viz._graph import Graph, graph
from wisp.viz._summary import Summary, summary
from wisp.viz._timeline import timeline

__all__ = [
    "Chart",
    "Curves",
    "Fusions",
    "Graph",
    "Summary",
    "activations",
    "curves",
    "fusions",
    "gradient_flow",
    "graph",
    "image",
    "module_html",
    "summary",
    "tensor_html",
    "timeline",
    "trace",
]

_reference.attach(__name__, globals())
