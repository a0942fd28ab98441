"""Optimizers, and schedulers of their learning rates."""

from wisp import _reference
from wisp.optim import lr_scheduler
from wisp.optim._adafactor import Adafactor
from wisp.optim._muon import Muon
from wisp.optim.adadelta import Adadelta
from wisp.optim.adagrad import Adagrad
from wisp.optim.adam import Adam
from wisp.optim.adamax import Adamax
from wisp.optim.adamw import AdamW
from wisp.optim.asgd import ASGD
from wisp.optim.lbfgs import LBFGS
from wisp.optim.nadam import NAdam
from wisp.optim.optimizer import Optimizer, swap_in_optimizer_params_and_state
from wisp.optim.radam import RAdam
from wisp.optim.rmsprop import RMSprop
from wisp.optim.rprop import Rprop
from wisp.optim.sgd import SGD
from wisp.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
    "swap_in_optimizer_params_and_state",
]


def __getattr__(name):
    if name == "swa_utils":  # needs wisp.nn, which the optimizers do not
        import importlib

        return importlib.import_module("wisp.optim.swa_utils")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_reference.attach(__name__, globals())
