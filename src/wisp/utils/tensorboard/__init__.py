"""Writes what TensorBoard shows. TensorBoard itself is needed to look at it, not to write it.

>>> import tempfile
>>> from wisp.utils.tensorboard import SummaryWriter
>>> with SummaryWriter(tempfile.mkdtemp()) as writer:
...     for step in range(3):
...         writer.add_scalar("loss", 1 / (step + 1), step)
"""

from wisp import _reference
from wisp.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]

_reference.attach(__name__, globals())
