"""Checks of operands for the cross entropy kernels."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import power_of_two_at_least
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined

_MAX_ROWS = 1 << 16
"""Maximum rows of a mean; for more, one group is too slow."""
_MAX_CLASSES = 64
"""Maximum classes of a mean cross entropy; for more, one work-item per row is too slow."""
_MAX_GROUP = 1024
_MIN_GROUP = 32


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


def forward_and_backward(inputs: Inputs) -> tuple[Spec, Spec, Spec] | Declined:
    """Return the specs of logits, target and incoming gradient."""
    logits, target, g = inputs
    if not (isinstance(logits, Spec) and isinstance(target, Spec) and isinstance(g, Spec)):
        return Declined("an operand is a number")
    if not g.dtype.is_floating_point:
        return Declined(f"the gradient is {g.dtype.name}")
    return logits, target, g


def mean(inputs: Inputs) -> tuple[Spec, Spec] | Declined:
    """Return the specs of the losses of rows and of the target, if one group of a device can add them."""
    specs = forward(inputs)
    if not isinstance(specs, Declined) and (rows := specs[0].shape[0]) > _MAX_ROWS:
        return Declined(f"{rows} rows; one group adds at most {_MAX_ROWS}")
    return specs


def mean_with_gradient(inputs: Inputs, *, cpu: bool) -> tuple[Spec, Spec] | Declined:
    """Return the specs of few logits and of their target, if one group of a device can process them."""
    specs = forward(inputs)
    if not isinstance(specs, Declined):
        rows, classes = specs[0].shape
        if cpu or rows > _MAX_GROUP or classes > _MAX_CLASSES:
            limit = f"one group of a GPU supports up to {_MAX_GROUP} rows of {_MAX_CLASSES}"
            return Declined(f"logits {specs[0].shape}; {limit}")
    return specs


def group_of_rows(rows: int, largest: int) -> int:
    """Return the size of a single group of a GPU that processes all rows; the device supports `largest`."""
    return min(largest, _MAX_GROUP, max(_MIN_GROUP, power_of_two_at_least(rows)))
