"""Products of matrices and vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("addmm")
def add_product(c: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return `beta * c + alpha * a @ b`. A product of floats is summed with its addend before it is rounded."""
    if not _is_fused(a, b, beta, alpha):
        return _composed(c, a, b, beta, alpha)
    addend, weight = c if beta == 1 else c * beta, F["permute"](b, (1, 0))
    if addend.shape == b.shape[1:]:
        return F["linear"](a, weight, addend)
    return F["fused_linear"](a, weight, None, F["broadcast_to"](addend, (a.shape[0], b.shape[1])))


@aten("addmv")
def add_product_with_vector(c: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return `beta * c + alpha * a @ b` for a vector b, rounded as `add_product`."""
    if not _is_fused(a, b, beta, alpha):
        return _composed(c, a, b, beta, alpha)
    return F["linear"](b, a, F["broadcast_to"](c if beta == 1 else c * beta, a.shape[:1]))


@aten("baddbmm")
def add_batched_product(c: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Any:
    if a.ndim == b.ndim == 3 and a.shape[0] == b.shape[0] == 1 and c.ndim <= 3:
        addend = F["reshape"](c, c.shape[-2:])
        product = add_product(addend, F["reshape"](a, a.shape[1:]), F["reshape"](b, b.shape[1:]), beta, alpha)
        return F["reshape"](product, (1, *product.shape))
    return _composed(c, a, b, beta, alpha)


def _is_fused(a: Tensor, b: Tensor, beta: Any, alpha: Any) -> bool:
    """Return whether one op computes the product and the sum. A factor of the product is an operand of an op of its own."""
    return alpha == 1 and beta != 0 and a.dtype.kind == "float" and a.ndim == 2 and a.shape[1:] == b.shape[:1]


def _composed(c: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> Any:
    """Return `beta * c + alpha * a @ b`, op by op."""
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
