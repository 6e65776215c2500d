"""Checks of operands for the cross entropy kernels."""

from __future__ import annotations

from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined


def forward(inputs: Inputs) -> tuple[Spec, Spec] | Declined:
    """Return the specs of the logits (or of the losses of all rows) and of the target."""
    first, target = inputs
    if not isinstance(first, Spec) or not isinstance(target, Spec):
        return Declined("an operand is a number")
    return first, target


def backward(inputs: Inputs) -> tuple[Spec, Spec, Spec, Spec] | Declined:
    """Return the specs of incoming gradient, logits, target and logsumexp."""
    g, logits, target, lse = inputs
    if not (isinstance(g, Spec) and isinstance(logits, Spec) and isinstance(target, Spec) and isinstance(lse, Spec)):
        return Declined("an operand is a number")
    if lse.dtype is not accumulator(logits.dtype) or not g.dtype.is_floating_point:
        return Declined(f"g is {g.dtype.name} and lse {lse.dtype.name}")
    return g, logits, target, lse
