"""Affine maps and lookups."""

from __future__ import annotations

from polyhal import functions as ops
from polyhal.hal import dtypes
from polyhal.tensor import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`: x (..., in), weight (out, in), bias (out,)."""
    return ops.linear(x, weight, bias)


def embedding(index: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` (R, W) by number: index (...) to (..., W). Row `padding_idx` receives no gradient."""
    out: Tensor = ops.embedding(weight, index)
    if padding_idx is not None and weight.requires_grad:
        padding_idx %= weight.shape[0]
        out = ops.where(ops.unsqueeze(ops.equal(index, padding_idx), -1), weight.detach()[padding_idx], out)
    return out


def one_hot(index: Tensor, num_classes: int = -1) -> Tensor:
    """Integers (...) as rows (..., num_classes) with a single 1, in the dtype of `index`.

    Without `num_classes` the largest integer decides, which waits for the device.
    """
    if num_classes < 0:
        num_classes = int(ops.max(index).item()) + 1 if index.size else 0
    classes = ops.arange(0, num_classes, 1, dtypes.int32, device=index.device)
    return ops.equal(ops.unsqueeze(index, -1), classes).to(index.dtype)
