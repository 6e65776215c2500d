"""Copies between devices within a captured step. In eager mode `Tensor.to` copies at once and needs no op."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal.ops.declare import Output, Specs, Trait, declare, first_tensor
from polyhal.hal.ops.tensor_like import Array


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    x = first_tensor(specs)
    return [(x.dtype, x.shape)]


def _transfer(x: Array) -> Any:
    """`x` copied to the device of the graph node."""
    return np.array(x)


transfer = declare(
    _transfer,
    name="transfer",
    family="transfer",
    infer=_infer,
    lowering=(),  # the scheduler runs it, because only the scheduler has both devices
    traits=Trait.CROSS_DEVICE,
    public=False,
)
