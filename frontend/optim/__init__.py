"""Optimizers and learning-rate schedules."""

from polyhal.optim import lr_scheduler
from polyhal.optim.adam import Adam, AdamW
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
    "SGD", "Adam", "AdamW", "ConstantLR", "CosineAnnealingLR", "LambdaLR", "LinearLR", "Optimizer", "Scheduler",
    "SequentialLR", "StepLR", "WarmupCosine", "lr_scheduler",
]  # fmt: skip
