"""An op's decomposition as it is run: in a precision and with operands that its text takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.hal import dispatch, dtypes
from polyhal.hal.layout import ScalarSpec, Spec
from polyhal.hal.ops.lowering import Decompose
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.traits import Trait

_HALF = (dtypes.float16, dtypes.bfloat16)


def decomposition(op: OpDef, outputs: tuple[Spec, ...]) -> Callable[..., Any]:
    """The op's decomposition with half-precision inputs widened first and results cast to the declared dtypes."""
    strategy = op.strategy(Decompose)
    if strategy is None:
        raise ValueError(f"op {op.name} has no decomposition")

    def run(*values: Any, **params: Any) -> tuple[Any, ...]:
        if Trait.POINTWISE in op.traits:
            values = _numbers_spread(op, values)
        if strategy.widen:
            values = tuple(
                v.cast(dtype=dtypes.float32)
                if hasattr(v, "spec") and isinstance(v.spec, Spec) and v.dtype in _HALF
                else v
                for v in values
            )
        result = strategy.function(*values, **params)
        results = result if isinstance(result, tuple) else (result,)
        return tuple(r if r.dtype is s.dtype else r.cast(dtype=s.dtype) for r, s in zip(results, outputs, strict=True))

    return run


def _numbers_spread(op: OpDef, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers among the operands as tensors of one element in the operands' dtype.

    An elementwise op may get a number in any place; its decomposition would compute on it alone in the default dtype.
    """
    from polyhal.hal.ops.layout.creation import broadcast_scalar
    from polyhal.hal.ops.pointwise.promotion import operand_dtype

    specs: list[Any] = []
    for v in values:
        if v is None or not hasattr(v, "spec"):
            specs.append(None if v is None else ScalarSpec(dispatch.scalar_dtype(v)))
        else:
            specs.append(v.spec)
    if not any(isinstance(s, ScalarSpec) for s in specs):
        return values
    dtype = operand_dtype(op, tuple(specs))
    return tuple(
        broadcast_scalar(v, (), dtype) if isinstance(s, ScalarSpec) else v for v, s in zip(values, specs, strict=True)
    )
