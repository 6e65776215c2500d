"""Optimizers and learning-rate schedules."""

from polyhal.optim import lr_scheduler
from polyhal.optim.adafactor import Adafactor
from polyhal.optim.adam import Adam, AdamW
from polyhal.optim.adam_variants import LAMB, Adamax, Lion, NAdam, RAdam
from polyhal.optim.adaptive import Adadelta, Adagrad, RMSprop
from polyhal.optim.averaged import ASGD, Rprop
from polyhal.optim.lbfgs import LBFGS
from polyhal.optim.lr_scheduler import *  # noqa: F403
from polyhal.optim.muon import Muon
from polyhal.optim.optimizer import Optimizer
from polyhal.optim.sgd import SGD

__all__ = [
    "ASGD", "LAMB", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "Muon", "NAdam",
    "Optimizer", "RAdam", "RMSprop", "Rprop", "lr_scheduler", *lr_scheduler.__all__,
]  # fmt: skip
