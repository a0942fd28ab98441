"""The parts of TensorBoard's files that libraries write themselves."""

from wisp.utils.tensorboard._content import hparams  # noqa: F401
