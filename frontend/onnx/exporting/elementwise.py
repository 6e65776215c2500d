"""Elementwise ops."""

from __future__ import annotations

from functools import partial

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.onnx.exporting.writer import ExportedOp, Name, element_type, exported

_UNARY = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "bitwise_invert": "BitwiseNot",
    "ceil": "Ceil",
    "contiguous": "Identity",
    "copy": "Identity",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "hardswish": "HardSwish",
    "log": "Log",
    "logical_not": "Not",
    "mish": "Mish",
    "negative": "Neg",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
_BINARY = {
    "add": "Add",
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "divide": "Div",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "maximum": "Max",
    "minimum": "Min",
    "multiply": "Mul",
    "pow": "Pow",
    "subtract": "Sub",
    "truncating_divide": "Div",
}
_OF_BOOLEANS = {"BitwiseAnd": "And", "BitwiseNot": "Not", "BitwiseOr": "Or", "BitwiseXor": "Xor"}
_COMPARISONS = {
    "equal": "Equal",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "less": "Less",
    "less_equal": "LessOrEqual",
}


def _register() -> None:
    for name, op in _UNARY.items():
        exported(name)(partial(_unary, op))
    for name, op in _BINARY.items():
        exported(name)(partial(_binary, op))
    for name, op in _COMPARISONS.items():
        exported(name)(partial(_comparison, op))


def _unary(op: str, call: ExportedOp) -> Name:
    dtype = call.outputs[0].dtype
    return call.write(_of(op, dtype), call.name(0, dtype))


def _of(op: str, dtype: DType) -> str:
    """Return ONNX's name of an op for operands of a dtype: bitwise ops of booleans are logical ones."""
    return _OF_BOOLEANS.get(op, op) if dtype is dtypes.bool_ else op


def _comparison(op: str, call: ExportedOp) -> Name:
    return call.write(op, *_common(call))


def _binary(op: str, call: ExportedOp) -> Name:
    dtype = call.outputs[0].dtype
    return call.write(_of(op, dtype), call.name(0, dtype), call.name(1, dtype))


def _common(call: ExportedOp) -> tuple[Name, Name]:
    """Return both operands in the dtype in which they are compared."""
    tensors: list[DType] = [s.dtype for s in call.specs if isinstance(s, Spec)]
    if not tensors:
        dtype = dtypes.float32 if any(isinstance(x, float) for x in call.inputs) else dtypes.int64
    else:
        dtype = tensors[0] if len(tensors) == 1 else dtypes.promote(*tensors)
    if len(tensors) == 1 and not dtype.is_floating_point and any(isinstance(x, float) for x in call.inputs):
        dtype = dtypes.float32
    if dtype is dtypes.bool_ and len(tensors) == 1:
        dtype = dtypes.int32
    return call.name(0, dtype), call.name(1, dtype)


@exported("not_equal")
def not_equal(call: ExportedOp) -> Name:
    """Write a comparison and its negation."""
    return call.write("Not", call.write("Equal", *_common(call)))


@exported("square")
def square(call: ExportedOp) -> Name:
    """Write a product."""
    return call.write("Mul", call.name(), call.name())


@exported("rsqrt")
def rsqrt(call: ExportedOp) -> Name:
    """Write a root and its reciprocal."""
    return call.write("Reciprocal", call.write("Sqrt", call.name(0, call.outputs[0].dtype)))


@exported("silu")
def silu(call: ExportedOp) -> Name:
    """Write a product with a sigmoid."""
    return call.write("Mul", call.name(), call.write("Sigmoid", call.name()))


@exported("gelu")
def gelu(call: ExportedOp) -> Name:
    """Write GELU, exact or approximate."""
    return call.write("Gelu", call.name(), approximate=call.params["approximate"])


@exported("leaky_relu")
def leaky_relu(call: ExportedOp) -> Name:
    """Write a leaky ReLU."""
    return call.write("LeakyRelu", call.name(), alpha=float(call.params["negative_slope"]))


@exported("elu", "celu")
def elu(call: ExportedOp) -> Name:
    """Write ELU."""
    return call.write("Elu", call.name(), alpha=float(call.params["alpha"]))


@exported("exp2")
def exp2(call: ExportedOp) -> Name:
    """Write a power of two."""
    return call.write("Pow", call.constant(2, call.dtype()), call.name())


@exported("log1p")
def log1p(call: ExportedOp) -> Name:
    """Write a logarithm of a sum."""
    return call.write("Log", call.write("Add", call.name(), call.constant(1, call.dtype())))


@exported("expm1")
def expm1(call: ExportedOp) -> Name:
    """Write an exponential minus one."""
    return call.write("Sub", call.write("Exp", call.name()), call.constant(1, call.dtype()))


@exported("isnan")
def isnan(call: ExportedOp) -> Name:
    """Write a test for NaN."""
    return call.write("IsNaN", call.name())


@exported("isinf")
def isinf(call: ExportedOp) -> Name:
    """Write a test for infinities."""
    return call.write("IsInf", call.name())


@exported("isfinite")
def isfinite(call: ExportedOp) -> Name:
    """Write a test for numbers that are not infinite."""
    return call.write("Not", call.write("Or", call.write("IsNaN", call.name()), call.write("IsInf", call.name())))


@exported("fmod")
def fmod(call: ExportedOp) -> Name:
    """Write a remainder with the sign of the dividend."""
    dtype = call.outputs[0].dtype
    return call.write("Mod", call.name(0, dtype), call.name(1, dtype), fmod=1)


@exported("remainder")
def remainder(call: ExportedOp) -> Name:
    """Write a remainder with the sign of the divisor."""
    dtype = call.outputs[0].dtype
    x, y = call.name(0, dtype), call.name(1, dtype)
    if not dtype.is_floating_point:
        return call.write("Mod", x, y)
    return call.write("Sub", x, call.write("Mul", call.write("Floor", call.write("Div", x, y)), y))


@exported("where")
def where(call: ExportedOp) -> Name:
    """Write a choice."""
    dtype = call.outputs[0].dtype
    return call.write("Where", call.name(0, dtypes.bool_), call.name(1, dtype), call.name(2, dtype))


@exported("clip")
def clip(call: ExportedOp) -> Name:
    """Write maxima and minima with bounds, which may be tensors."""
    dtype = call.outputs[0].dtype
    x = call.name(0, dtype)
    x = call.write("Max", x, call.name(1, dtype)) if call.has(1) else x
    return call.write("Min", x, call.name(2, dtype)) if call.has(2) else x


@exported("cast")
def cast(call: ExportedOp) -> Name:
    """Write a cast."""
    return call.write("Cast", call.name(), to=element_type(call.outputs[0].dtype))


_register()
