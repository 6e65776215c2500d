"""All learning-rate schedules, under PyTorch's name of the module."""

from polyhal.optim.combined_schedules import ChainedScheduler, SequentialLR
from polyhal.optim.cyclic_schedules import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from polyhal.optim.decay_schedules import ExponentialLR, MultiplicativeLR, MultiStepLR, PolynomialLR
from polyhal.optim.plateau import ReduceLROnPlateau
from polyhal.optim.schedule import (
    ConstantLR,
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    Scheduler,
    StepLR,
    WarmupCosine,
)

LRScheduler = Scheduler

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau",
    "Scheduler", "SequentialLR", "StepLR", "WarmupCosine",
]  # fmt: skip
