"""Range checks of Python numbers for the dtype in which they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.hal.errors import NumberRangeError, message

if TYPE_CHECKING:
    from polyhal.hal.core.execution.op_plan import OpPlan
    from polyhal.hal.dtypes import DType
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import Inputs

_LEAST, _END = -(1 << 63), 1 << 64


def require_fit(op: str, value: Any, dtype: DType) -> None:
    """Raise NumberRangeError for a number beyond an integer dtype. Negative ones wrap to unsigned, as in PyTorch."""
    if dtype.kind not in ("int", "uint") or type(value) not in (int, float):
        return
    end = 1 << (dtype.bits - (dtype.kind == "int"))
    least = -end if dtype.kind == "int" else 1 - end
    if not least <= value < end:
        expected = f"{0 if dtype.kind == 'uint' else least} to {end - 1}"
        raise NumberRangeError(message(op, f"{value} does not fit {dtype.name}", expected=expected))


def require_operands_fit(op: OpDef, inputs: Inputs, dtype: DType) -> None:
    """Raise NumberRangeError for a number among the inputs that an op would store in a dtype that does not hold it."""
    if op.stores_numbers and dtype.kind in ("int", "uint"):
        for x in inputs:
            require_fit(op.name, x, dtype)


def in_64_bits(value: int) -> int:
    """Return the int64 with the bits of an integer. Raises NumberRangeError outside the ranges of int64 and uint64."""
    if not _LEAST <= value < _END:
        digits = f"an integer of {value.bit_length()} bits"
        raise NumberRangeError(message("number", digits, expected="64 bits", fix="pass a float, or a smaller number"))
    return value if value < 1 << 63 else value - _END


def guard(plan: OpPlan, op: OpDef, specs: tuple[Any, ...]) -> OpPlan:
    """Return the plan with range checks of numbers if the op stores them without arithmetic, which would wrap them.

    No-op for other ops and for results that are not integers.
    """
    if (
        not op.stores_numbers
        or not (int in specs or float in specs)
        or plan.outputs[0].dtype.kind not in ("int", "uint")
    ):
        return plan
    dtype, run, single = plan.outputs[0].dtype, plan.run, plan.single

    def checked_run(args: Any, outs: Any) -> None:
        for x in args:
            require_fit(op.name, x, dtype)
        run(args, outs)

    def checked(*args: Any) -> None:
        assert single is not None
        for x in args:
            require_fit(op.name, x, dtype)
        single(*args)

    plan.run = checked_run
    plan.single = None if single is None else checked
    return plan
