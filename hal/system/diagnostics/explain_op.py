"""Explanation of the resolution of an op on a device, with the reasons for skipped steps."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.compile.op_plugins import declared, op_plugins
from polyhal.hal.compile.planning.resolution import Resolution
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype, float32
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef, OpFunction
from polyhal.hal.protocol import Number

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Inputs


def explain(
    op: str | OpFunction,
    device: Device | str | None = None,
    *shapes: tuple[int, ...] | Number,
    dtype: object = float32,
    **params: Any,
) -> str:
    """Explain step by step how `op` is resolved on `device`, with the reason for every skipped step; see `resolution`."""
    target = Device(device)
    return f"{target.name} ({target.info.name})\n{resolution(op, target, *shapes, dtype=dtype, **params)}"


def resolution(
    op: str | OpFunction, device: Device, *shapes: tuple[int, ...] | Number, dtype: object = float32, **params: Any
) -> Resolution:
    """Return how `op` is resolved on `device`.

    `op` is the name of an op, built in or of an installed package, or a function that `polyhal.kernel` returned. `shapes` has
    the shape of each input, or a number for a scalar; without it, the op's samples provide shapes and parameters. Raises
    KeyError for an unknown op, naming close matches, and ShapeError if a required input has no shape.
    """
    definition = declared(op) if isinstance(op, str) else op.op
    if definition is None:
        raise KeyError(_unknown(str(op)))
    kind = as_dtype(dtype)
    if shapes:
        absent = len(definition.schema.inputs) - len(shapes)
        missing = [name for name in definition.schema.inputs[len(shapes) :] if name not in definition.schema.optional]
        if missing and not definition.schema.variadic:
            problem = f"missing shape of {' and '.join(missing)}"
            expected = f"a shape for each of {', '.join(definition.schema.inputs)}"
            raise ShapeError(message(definition.name, problem, expected=expected))
        specs: tuple[Any, ...] = (
            *(type(s) if isinstance(s, bool | int | float) else contiguous(kind, tuple(s)) for s in shapes),
            *[None] * absent,
        )
    else:
        inputs, defaults = _largest_sample(definition, kind)
        specs = tuple(_spec(x, kind) for x in inputs)
        params = {**defaults, **params}
    bound = {**definition.schema.params, **params}
    plan = device.planner.plan(definition, specs, tuple(bound[name] for name in definition.schema.params))
    return plan.resolution


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, [*OPS.names(), *op_plugins().names()], 3)
    return f"unknown op {name!r}" + (f"; did you mean {' or '.join(close)}?" if close else "")


def _largest_sample(op: OpDef, kind: DType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return inputs and parameters of the largest plain sample, preferably with operands of that dtype.

    Raises ValueError if the op has no sample.
    """
    if op.tests.samples is None:
        raise ValueError(f"{op.name} has no sample to plan for; give shapes")
    samples = op.tests.samples(np.random.default_rng(0))
    sample = max(
        samples, key=lambda s: (_takes(s.inputs, kind), not s.note, sum(np.size(x) for x in s.inputs if x is not None))
    )
    return sample.inputs, sample.params


def _takes(inputs: Inputs, kind: DType) -> bool:
    """Return whether these inputs include an operand of that dtype; floating-point arrays are cast to it."""
    arrays = [np.asarray(x) for x in inputs if x is not None and not isinstance(x, bool | int | float)]
    return any(a.dtype.kind not in "biu" or as_dtype(a.dtype) is kind for a in arrays)


def _spec(x: Any, kind: DType) -> Any:
    if x is None or isinstance(x, (bool, int, float)):
        return None if x is None else type(x)
    array = np.asarray(x)
    dtype = as_dtype(array.dtype) if array.dtype.kind in "biu" else kind
    return contiguous(dtype, array.shape)
