"""Products of matrices and vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.ops.linear_algebra.fused_matmul import fused_matmul
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, cast

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
    if _is_fused(a, b, beta, alpha):
        return F["linear"](b, a, F["broadcast_to"](c if beta == 1 else c * beta, a.shape[:1]))
    if not _is_half(c, a):
        return _composed(c, a, b, beta, alpha)
    row = _composed(c, F["reshape"](b, (1, *b.shape)), F["permute"](a, (1, 0)), beta, alpha)
    return F["reshape"](row, a.shape[:1])


@aten("baddbmm")
def add_batched_product(c: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return `beta * c + alpha * a @ b` for batches of matrices, rounded as `add_product`."""
    if a.ndim == b.ndim == 3 and a.shape[0] == b.shape[0] == 1 and c.ndim <= 3:
        addend = F["reshape"](c, c.shape[-2:])
        product = add_product(addend, F["reshape"](a, a.shape[1:]), F["reshape"](b, b.shape[1:]), beta, alpha)
        return F["reshape"](product, (1, *product.shape))
    return _composed(c, a, b, beta, alpha)


@aten("addbmm")
def add_sum_of_products(c: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return `beta * c + alpha * (a @ b).sum(0)` for batches of matrices, rounded as `add_product`."""
    if a.dtype.itemsize != 2 or a.ndim != 3 or b.ndim != 3 or (a.shape[0], a.shape[2]) != b.shape[:2]:
        return F["addbmm"](c, a, b, beta=beta, alpha=alpha)
    terms = a.shape[0] * a.shape[2]  # the sum over batches only adds terms to each sum
    rows = F["reshape"](F["permute"](a, (1, 0, 2)), (a.shape[1], terms))
    return add_product(c, rows, F["reshape"](b, (terms, b.shape[2])), beta, alpha)


def _is_fused(a: Tensor, b: Tensor, beta: Any, alpha: Any) -> bool:
    """Return whether a linear layer computes the product and the sum. A factor is an operand of an op of its own.

    A factor of a sum in half precision takes part in its rounding.
    """
    one = beta == 1 if a.dtype.itemsize == 2 else beta != 0
    return alpha == 1 and one and a.dtype.kind == "float" and a.ndim == 2 and a.shape[1:] == b.shape[:1]


def _is_half(c: Tensor, a: Tensor) -> bool:
    return c.dtype is a.dtype and c.dtype.kind == "float" and c.dtype.itemsize == 2


def _composed(c: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> Any:
    """Return `beta * c + alpha * a @ b`, op by op, or in half precision rounded once."""
    if c.dtype.kind not in ("float", "complex"):
        beta, alpha = int(beta), int(alpha)
    if _is_half(c, a) and (alpha != 1 or beta != 0):
        constant = all(type(factor) in (int, float) for factor in (beta, alpha))
        sum_ = _with_epilogue if a.ndim > 1 and b.ndim > 1 and constant else _rounded_once
        return sum_(c, a, b, beta, alpha)
    out = F["matmul"](a, b)
    out = out if alpha == 1 else out * alpha
    return out if beta == 0 else out + (c if beta == 1 else c * beta)


def _rounded_once(c: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> Any:
    """Return `beta * c + alpha * a @ b` of half precision, computed in float32."""
    product = F["matmul"](a, b, out_dtype=dtypes.float32)
    product = product if alpha == 1 else product * alpha
    addend = c if beta in (0, 1) else cast(c, dtypes.float32) * beta
    return cast(product if beta == 0 else product + addend, c.dtype)


def _with_epilogue(c: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Any:
    """Return `beta * c + alpha * a @ b` as one op, whose steps scale and add before the product is stored."""
    addends = [] if beta == 0 else [_addend(c, (*a.shape[:-1], b.shape[-1]), beta)]
    factors = [(place, float(x)) for place, x in ((0, alpha), (1, beta if addends else 1)) if x != 1]
    terms, steps, count = {0: 0, 1: 1}, [], 1 + len(addends) + len(factors)
    for number, (place, _) in enumerate(factors, 1 + len(addends)):
        steps.append(("multiply", (place, number), ()))
        terms[place] = count + len(steps) - 1
    if addends:
        steps.append(("add", (terms[0], terms[1]), ()))
    return fused_matmul((a, b, *addends), steps=tuple(steps), numbers=tuple(x for _, x in factors))


def _addend(c: Tensor, shape: tuple[int, ...], beta: float) -> Any:
    """Return an addend with all elements of a product, or without a factor for its columns: steps have the product's shape."""
    return c if beta == 1 and c.shape == shape[-1:] else F["broadcast_to"](c, shape)


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
