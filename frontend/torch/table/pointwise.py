"""Pointwise functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.torch.registration import aten, same_op
from polyhal.torch.table.operands import OPS, F, cast, is_tensor, promoted

_UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frac hardsigmoid "
    "hardswish lgamma log log10 log1p log2 mish reciprocal relu rsqrt "
    "sigmoid sign silu sin sinc sinh sqrt tan tanh trunc"
)
_PREDICATES = "isfinite isinf isnan isneginf isposinf logical_not signbit"
_RENAMED = {"neg": "negative", "bitwise_not": "bitwise_invert", "sgn": "sign"}
_BINARY = {
    "__ilshift__.Scalar": "bitwise_left_shift",
    "__ilshift__.Tensor": "bitwise_left_shift",
    "__irshift__.Scalar": "bitwise_right_shift",
    "__irshift__.Tensor": "bitwise_right_shift",
    "__lshift__.Scalar": "bitwise_left_shift",
    "__lshift__.Tensor": "bitwise_left_shift",
    "__rshift__.Scalar": "bitwise_right_shift",
    "__rshift__.Tensor": "bitwise_right_shift",
    "atan2.default": "atan2",
    "bitwise_and.Scalar": "bitwise_and",
    "bitwise_and.Tensor": "bitwise_and",
    "bitwise_left_shift.Tensor": "bitwise_left_shift",
    "bitwise_left_shift.Tensor_Scalar": "bitwise_left_shift",
    "bitwise_or.Scalar": "bitwise_or",
    "bitwise_or.Tensor": "bitwise_or",
    "bitwise_right_shift.Tensor": "bitwise_right_shift",
    "bitwise_right_shift.Tensor_Scalar": "bitwise_right_shift",
    "bitwise_xor.Scalar": "bitwise_xor",
    "bitwise_xor.Tensor": "bitwise_xor",
    "copysign.Tensor": "copysign",
    "div.Scalar": "divide",
    "div.Tensor": "divide",
    "floor_divide.Scalar": "floor_divide",
    "floor_divide.default": "floor_divide",
    "fmax.default": "fmax",
    "fmin.default": "fmin",
    "fmod.Scalar": "fmod",
    "fmod.Tensor": "fmod",
    "gcd.default": "gcd",
    "heaviside.default": "heaviside",
    "hypot.default": "hypot",
    "lcm.default": "lcm",
    "logaddexp.default": "logaddexp",
    "logaddexp2.default": "logaddexp2",
    "maximum.default": "maximum",
    "minimum.default": "minimum",
    "mul.Scalar": "multiply",
    "mul.Tensor": "multiply",
    "nextafter.default": "nextafter",
    "remainder.Scalar": "remainder",
    "remainder.Scalar_Tensor": "remainder",
    "remainder.Tensor": "remainder",
    "xlogy.Scalar_Other": "xlogy",
    "xlogy.Scalar_Self": "xlogy",
    "xlogy.Tensor": "xlogy",
}

_COMPARISONS = {
    "eq.Scalar": "equal",
    "eq.Tensor": "equal",
    "ge.Scalar": "greater_equal",
    "ge.Tensor": "greater_equal",
    "gt.Scalar": "greater",
    "gt.Tensor": "greater",
    "le.Scalar": "less_equal",
    "le.Tensor": "less_equal",
    "logical_and.default": "logical_and",
    "logical_or.default": "logical_or",
    "logical_xor.default": "logical_xor",
    "lt.Scalar": "less",
    "lt.Tensor": "less",
    "ne.Scalar": "not_equal",
    "ne.Tensor": "not_equal",
}
"""Ops with results of bool, which a target of another dtype receives through a cast."""


def _binary(op: str) -> Callable[[Any, Any], Any]:
    call = OPS[op].call

    def compute(a: Any, b: Any) -> Any:
        return call(*promoted(a, b))

    return compute


for _name in _UNARY.split():
    same_op(_name, f"{_name}.default")
for _name, _op in _RENAMED.items():
    same_op(_op, f"{_name}.default")
for _name, _op in _BINARY.items():
    same_op(_op, _name, via=_binary(_op))
for _name, _op in _COMPARISONS.items():
    aten(_name)(_binary(_op))
for _name in _PREDICATES.split():
    aten(_name)(OPS[_name].call)


@aten("add.Tensor", "add.Scalar")
def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    a, b = promoted(a, b)
    return F["add"](a, b if alpha == 1 else b * alpha)


@aten("sub.Tensor", "sub.Scalar")
def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    a, b = promoted(a, b)
    return F["subtract"](a, b if alpha == 1 else b * alpha)


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return sub(b, a, alpha)


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    a, b = promoted(a, b)
    return F["div"](a, b, rounding_mode=rounding_mode)


@aten("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(a: Any, b: Any) -> Any:
    if not is_tensor(b) and b in (1, 2, 0.5):
        if b == 1:
            return F["copy"](a)
        if a.dtype.is_floating_point:
            return F["square" if b == 2 else "sqrt"](a)
    return F["pow"](*promoted(a, b))


@aten("where.self")
def where(condition: Any, a: Any, b: Any) -> Any:
    return F["where"](condition, *promoted(a, b))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    if is_tensor(value) and value.shape:
        raise RuntimeError(f"masked_fill only supports a 0-dimensional value tensor, but got {value.ndim} dimension(s)")
    return F["masked_fill"](x, mask, value)


@aten("clamp", "clamp.Tensor")
def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    if low is not None:
        x = F["maximum"](*promoted(x, low))
    return x if high is None else F["minimum"](*promoted(x, high))


@aten("clamp_min", "clamp_min.Tensor")
def clamp_min(x: Any, low: Any) -> Any:
    return clamp(x, low)


@aten("clamp_max", "clamp_max.Tensor")
def clamp_max(x: Any, high: Any) -> Any:
    return clamp(x, None, high)


@aten("round")
def round_(x: Any) -> Any:
    return F["round"](x)


@aten("round.decimals")
def round_decimals(x: Any, decimals: int = 0) -> Any:
    return F["round"](x, decimals)


@aten("addcmul")
def addcmul(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
    return F["addcmul"](x, a, b, value)


@aten("addcdiv")
def addcdiv(x: Any, a: Any, b: Any, value: Any = 1) -> Any:
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
    return F["lerp"](x, end, weight)


@aten("frexp.Tensor")
def frexp(x: Any) -> Any:
    return tuple(F["frexp"](x))


@aten("angle")
def angle(x: Any) -> Any:
    return F["angle"](x)


@aten("nan_to_num")
def nan_to_num(x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    return F["nan_to_num"](x, nan or 0.0, posinf, neginf)


@aten("copy")
def copy(x: Any, source: Any) -> Any:
    """Return `source` in the shape and dtype of `x`."""
    return F["copy"](F["broadcast_to"](cast(source, x.dtype), x.shape))
