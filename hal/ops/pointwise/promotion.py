"""Type promotion of elementwise ops: the dtype in which an op computes, from the dtypes of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import scalar_dtype, unsupported_dtype
from polyhal.hal.dtypes import DType, promote, promote_scalar, to_float
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.schema import Specs
from polyhal.hal.ops.tensor_like import TensorLike

_PYTHON_KINDS: dict[str, type] = {"bool": bool, "int": int, "uint": int, "float": float}


def promoted_dtype(inputs: Specs) -> DType:
    """The common dtype of tensors and Python numbers; numbers change a tensor's kind, never its width."""
    dtype: DType | None = None
    for s in inputs:
        if isinstance(s, Spec):
            dtype = s.dtype if dtype is None else promote(dtype, s.dtype)
    for s in inputs:
        if isinstance(s, ScalarSpec):
            dtype = s.dtype if dtype is None else promote_scalar(dtype, _PYTHON_KINDS[s.dtype.kind])
    if dtype is None:
        raise ValueError("no inputs to promote")
    return dtype


def operand_dtype(op: OpDef, inputs: Specs) -> DType:
    """The dtype to which an elementwise op casts its inputs before it computes.

    A condition is no operand: for `where` the dtype is that of both branches. Raises UnsupportedDTypeError where the op does
    not take that kind.
    """
    if op.schema.inputs[0] == "cond":
        inputs = inputs[1:]
    dtype = promoted_dtype(inputs)
    match op.promotion:
        case "bool":
            return dtypes.bool_
        case "float":
            return to_float(dtype)
        case "numeric" if dtype.kind == "bool":
            raise unsupported_dtype(op, dtype, "numbers")
        case "number" if dtype.kind == "bool":
            return dtypes.DEFAULT_INT
        case "integral" if dtype.kind == "float":
            raise unsupported_dtype(op, dtype, "integers or bool")
        case "integer" if dtype.kind in ("float", "bool"):
            raise unsupported_dtype(op, dtype, "integers")
    return dtype


def in_common_dtype(function: Callable[..., Any], x: Any, y: Any) -> Any:
    """Apply `function` to `x` and `y` cast to their common dtype, so that it may branch on the kind."""
    dtype = promoted_dtype(tuple(_spec(v) for v in (x, y)))
    return function(*[v if not hasattr(v, "dtype") or v.dtype is dtype else v.cast(dtype=dtype) for v in (x, y)])


def _spec(value: TensorLike) -> Any:
    return value.spec if hasattr(value, "spec") else ScalarSpec(scalar_dtype(value))
