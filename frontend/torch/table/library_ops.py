"""Ops that libraries define for their compiled programs, and whose own code reads elements in Python, which splits a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.torch.registration import library_op
from polyhal.torch.table.grouped_products import grouped_mm, transposed

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@library_op("transformers::grouped_mm_fallback")
def grouped_rows(x: Tensor, weight: Tensor, offs: Tensor) -> Any:
    """Multiply each group of rows of `x` (s, k) by its matrix of `weight` (groups, k, n)."""
    return grouped_mm(x, weight, offs)


@library_op("transformers::grouped_mm_fallback_backward")
def grouped_rows_backward(x: Tensor, weight: Tensor, offs: Tensor, gradient: Tensor) -> tuple[Any, Any]:
    """Return the gradients of `x` and `weight`."""
    return grouped_mm(gradient, transposed(weight), offs), grouped_mm(transposed(x), gradient, offs)
