"""Pointwise functions with further arguments. Entries of elementwise ops follow from their declarations (`declared.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, cast, is_tensor, mixed, promoted

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


@aten("add.Tensor", "add.Scalar")
def add(a: Tensor, b: Tensor | float, alpha: Any = 1) -> Any:
    a, b = promoted(a, b)
    return F["add"](a, b if alpha == 1 else b * alpha)


@aten("sub.Tensor", "sub.Scalar")
def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    if is_tensor(a) and is_tensor(b) and a.dtype is not b.dtype and dtypes.bool_ in (a.dtype, b.dtype):
        raise RuntimeError(
            "[sub] bool tensors are not subtracted; cast the bool one with .to(dtype), or invert it with ~"
        )
    a, b = promoted(a, b)
    return F["subtract"](a, b if alpha == 1 else b * alpha)


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(a: Tensor, b: Tensor | int, alpha: Any = 1) -> Any:
    return sub(b, a, alpha)


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    a, b = promoted(a, b)
    return F["div"](a, b, rounding_mode=rounding_mode)


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(a: Any, b: Tensor | float) -> Any:
    if not is_tensor(b) and b in (1, 2, 0.5):
        if b == 1:
            return F["copy"](a)
        if a.dtype.is_floating_point:
            return F["square" if b == 2 else "sqrt"](a)
    return F["pow"](*promoted(a, b))


@aten("where.self")
def where(condition: Tensor, a: Tensor, b: Tensor) -> Any:
    return F["where"](condition, *promoted(a, b))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Any:
    if is_tensor(value) and value.shape:
        raise RuntimeError(f"masked_fill only supports a 0-dimensional value tensor, but got {value.ndim} dimension(s)")
    return F["masked_fill"](x, mask, value)


@aten("clamp", "clamp.Tensor")
def clamp(x: Tensor, low: Tensor | float | None = None, high: Any = None) -> Any:
    if low is not None:
        x = F["maximum"](*promoted(x, low))
    return x if high is None else F["minimum"](*promoted(x, high))


@aten("clamp_min", "clamp_min.Tensor")
def clamp_min(x: Tensor, low: Tensor | float) -> Any:
    return clamp(x, low)


@aten("clamp_max", "clamp_max.Tensor")
def clamp_max(x: Any, high: Any) -> Any:
    return clamp(x, None, high)


@aten("addcdiv")
def addcdiv(x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Any:
    if not any(t.dtype.is_floating_point or t.dtype.kind == "complex" for t in (a, b)):
        raise RuntimeError("Integer division with addcdiv is no longer supported: true_divide the tensors instead")
    if value == 1 or x.dtype.itemsize < 4:
        return F["addcdiv"](x, a, b, value)
    # Optimizers pass another number at each step: as an operand it does not need a new kernel.
    return F["addcmul"](x, F["divide"](a, b), value)


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(x: Any, end: Any, weight: Any) -> Any:
    if not (x.dtype.is_floating_point or x.dtype.kind == "complex"):
        raise NotImplementedError(f"lerp is not implemented for {x.dtype.name}")
    if is_tensor(weight) and weight.dtype is not x.dtype:
        if weight.shape:
            raise mixed("lerp", self=x, weight=weight)
        weight = cast(weight, x.dtype)
    return F["lerp"](x, end, weight)


@aten("nan_to_num")
def nan_to_num(x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    return F["nan_to_num"](x, nan or 0.0, posinf, neginf)


@aten("copy")
def copy(x: Any, source: Any) -> Any:
    """Return `source` in the shape and dtype of `x`."""
    return F["copy"](F["broadcast_to"](cast(source, x.dtype), x.shape))
