"""Products of matrices and vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("addmm", "baddbmm", "addmv")
def add_product(c: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Any:
    if beta == 1 and alpha == 1 and a.ndim == b.ndim == 2 and c.shape == b.shape[1:] and c.dtype is a.dtype:
        return F["linear"](a, F["permute"](b, (1, 0)), c)
    if c.dtype.kind not in ("float", "complex"):
        beta, alpha = int(beta), int(alpha)
    out = F["matmul"](a, b)
    out = out if alpha == 1 else out * alpha
    return out if beta == 0 else out + (c if beta == 1 else c * beta)


@aten("linear_backward")
def linear_backward(x: Tensor, grad: Tensor, weight: Tensor, mask: Any) -> Any:
    """Return gradients of the input, the weight and the bias."""
    count = math.prod(grad.shape[:-1])
    rows = F["reshape"](grad, (count, grad.shape[-1]))
    dx = F["reshape"](F["matmul"](rows, weight), x.shape) if mask[0] else None
    if not mask[1]:
        return dx, None, F["sum"](rows, 0) if mask[2] else None
    inputs = F["reshape"](x, (count, x.shape[-1]))
    if mask[2]:
        return (dx, *F["linear_weight_grad"](rows, inputs))
    return dx, F["matmul"](F["permute"](rows, (1, 0)), inputs), None


@aten("trace")
def trace(x: Tensor) -> Any:
    if x.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {x.ndim}")
    return F["trace"](x)
