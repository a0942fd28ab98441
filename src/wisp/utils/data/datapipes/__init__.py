"""DataPipes, which PyTorch has stopped to develop: steps of datasets as methods of one another."""

from wisp.utils.data.datapipes import iter, map  # noqa: F401
from wisp.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, MapDataPipe  # noqa: F401
