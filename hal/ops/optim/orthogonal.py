"""The update rule of Muon's momentum; its iteration of matrix products follows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from polyhal.hal.ops.optim.update_rule import update_rule
from polyhal.hal.ops.tensor_like import Numeric


def _muon(
    ops: SimpleNamespace,
    buffer: Numeric,
    g: Numeric,
    direction: Numeric,
    *,
    t: Numeric,
    momentum: Numeric,
    nesterov: bool = False,
) -> Any:
    """The momentum of Muon, and the direction in place of an earlier one. Source: K. Jordan et al. (2024)."""
    buffer = buffer + (g - buffer) * (1.0 - momentum)
    return buffer, g + (buffer - g) * momentum if nesterov else buffer


muon_momentum = update_rule(
    _muon,
    name="muon_momentum",
    states=lambda nesterov: ("direction",),
    numbers=("momentum",),
    variants=({"nesterov": True}, {}),
    draws={"momentum": 0.9},
)
