"""schedulefree: its optimizers."""

from __future__ import annotations

from typing import Any

import schedulefree
import torch
from torch import nn

from tests.torch.libraries.cases import Made, trained_case


def _layers() -> Made:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), {"input": torch.randn(5, 6)}


def _adamw(parameters: Any) -> torch.optim.Optimizer:
    optimizer = schedulefree.AdamWScheduleFree(parameters, lr=1e-3, warmup_steps=2)
    optimizer.train()
    return optimizer


trained_case("schedulefree", "AdamWScheduleFree", _layers, optimizer=_adamw)
