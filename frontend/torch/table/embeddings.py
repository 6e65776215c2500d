"""Rows of a table by index."""

from __future__ import annotations

from typing import Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, UnsupportedArgumentsError


@aten("embedding")
def embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    return F["embedding"](weight, indices)


@aten("embedding_dense_backward")
def embedding_backward(grad: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    if scale_grad_by_freq:
        raise UnsupportedArgumentsError
    if padding_idx >= 0:
        grad = F["where"](F["unsqueeze"](F["not_equal"](indices, padding_idx), -1), grad, 0.0)
    rows = F["reshape"](grad, (-1, grad.shape[-1]))
    return F["scatter_rows"](rows, F["reshape"](indices, (-1,)), num_weights)
