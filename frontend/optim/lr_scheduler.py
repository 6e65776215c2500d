"""Learning-rate schedules under PyTorch's name for the module; see `polyhal.optim.schedule`."""

from polyhal.optim.schedule import ConstantLR, CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR, StepLR
from polyhal.optim.schedule import Scheduler as LRScheduler

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "SequentialLR",
    "StepLR",
]
