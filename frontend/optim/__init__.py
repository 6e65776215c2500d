"""Optimizers and learning-rate schedules."""

from polyhal.optim.adam import Adam, AdamW
from polyhal.optim.adam_variants import Adamax, Lion, NAdam, RAdam
from polyhal.optim.adaptive import Adadelta, Adagrad, RMSprop
from polyhal.optim.averaged import ASGD, Rprop
from polyhal.optim.optimizer import Optimizer
from polyhal.optim.schedule import (
    ConstantLR,
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    Scheduler,
    SequentialLR,
    StepLR,
    WarmupCosine,
)
from polyhal.optim.sgd import SGD

__all__ = [
    "ASGD", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ConstantLR", "CosineAnnealingLR", "LambdaLR", "LinearLR",
    "Lion", "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "Scheduler", "SequentialLR", "StepLR", "WarmupCosine",
]  # fmt: skip
