"""Calls of ops that concern complex numbers: the op's rule for them runs, which is made of ops on real and imaginary parts.

A complex tensor is a pair of real ones (`Tensor.real`, `Tensor.imag`). Executors ask `is_complex_call` where a call is not in
their plans yet, so that it costs other calls nothing, and nothing below them knows of complex numbers: plans, graphs, the tape
and backends see ops on the parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal.core.execution.executor import Executor, executing
from polyhal.hal.dtypes import COMPLEX, DType
from polyhal.hal.errors import UnsupportedDTypeError, message

if TYPE_CHECKING:
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import Inputs, ParamValues
    from polyhal.hal.ops.tensor_like import Numeric

_NAMES = {d.name for d in COMPLEX}


def is_complex(x: Numeric | None) -> bool:
    """Return whether an operand is a complex tensor or number."""
    dtype = getattr(x, "dtype", None)
    return isinstance(x, complex) if dtype is None else isinstance(dtype, DType) and dtype.kind == "complex"


def is_complex_call(inputs: Inputs, params: ParamValues) -> bool:
    """Return whether an operand of a call is complex, or a parameter names a complex dtype."""
    return any(map(is_complex, inputs)) or any(map(_names_complex, params))


def _names_complex(param: Any) -> bool:
    if type(param) is DType:
        return param.kind == "complex"
    return isinstance(param, complex) or param is complex or (type(param) is str and param in _NAMES)


def apply_complex(
    executor: Executor, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None
) -> Any:
    """Apply the rule of `op` for complex numbers, whose ops go to `executor`. Raises UnsupportedDTypeError without one."""
    if op.complex is None:
        raise UnsupportedDTypeError(
            message(
                op.name, "got complex numbers", expected="a real dtype", fix="apply it to .real and .imag, or to .abs()"
            )
        )
    keywords = op.bind(params)
    if op.creates:
        keywords["device"] = device
    with executing(executor):
        return op.complex(*inputs, **keywords)
