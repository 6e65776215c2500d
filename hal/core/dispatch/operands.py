"""Operands of a call: taken in as arrays and numbers on one device, and as the specs that a plan is made for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.core.execution.executor import thread
from polyhal.hal.core.execution.frontend import frontend
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import (
    DeviceLostError,
    DeviceMismatchError,
    PolyhalError,
    ShapeError,
    UnsupportedDTypeError,
    message,
)
from polyhal.hal.layout import ScalarSpec
from polyhal.hal.protocol import InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.opdef import OpDef
    from polyhal.hal.ops.schema import Inputs

_NO_STAND_INS: Mapping[DType, DType] = {}
NUMBERS = frozenset((float, int, bool))
"""The types of Python numbers, which are passed to launches as numbers."""


def input_spec(x: Any) -> Any:
    """The planning key of an input: its spec, a Python number's type, or None."""
    if x is None:
        return None
    kind = type(x)
    return kind if kind in NUMBERS else x.ref.spec


def inference_spec(x: Any) -> InputSpec | None:
    """Return the argument of `infer` for an input: its spec, a number's dtype, or None."""
    if x is None:
        return None
    spec: InputSpec = x.spec if hasattr(x, "ref") else ScalarSpec(scalar_dtype(x))
    return spec


def infer(
    op: OpDef,
    specs: tuple[InputSpec | None, ...],
    params: dict[str, Any],
    stand_ins: Mapping[DType, DType] = _NO_STAND_INS,
) -> list[tuple[DType, tuple[int, ...]]]:
    """Apply the op's shape and dtype rule on a device with `stand_ins` (see `Device.stand_ins`).

    Plain ValueErrors become ShapeErrors that name the op.
    """
    try:
        results = list(op.infer(specs, params))
        return [(stand_ins.get(d, d), shape) for d, shape in results] if stand_ins else results
    except PolyhalError:
        raise
    except (ValueError, TypeError, IndexError) as error:
        inputs = ", ".join("none" if s is None else str(s) for s in specs)
        raise ShapeError(message(op.name, f"{error} (inputs: {inputs})")) from error


def scalar_dtype(value: Any) -> DType:
    """The dtype of a Python number if no tensor decides otherwise."""
    if isinstance(value, bool):
        return dtypes.bool_
    return dtypes.DEFAULT_INT if isinstance(value, int) else dtypes.DEFAULT_FLOAT


def target_device(device: Device | str | None) -> Device:
    """`device`, or for None the default device: that of the thread's `default_device` block, else the machine's best one."""
    return Device(thread.device if device is None else device)


def freeze(value: Any) -> Any:
    """Turn lists into tuples and NumPy numbers into Python ones, so that parameters can be part of a key."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def admitted(op: OpDef, inputs: Inputs, device: Device | None) -> tuple[tuple[Any, ...], Device]:
    """Inputs as arrays and numbers, and the one device that they are on. Raises DeviceMismatchError."""
    target = next((x.device for x in inputs if hasattr(x, "ref")), None)
    if target is None:
        target = target_device(device)
    elif device is not None and Device(device) is not target:
        raise mismatch(op, inputs)
    converted = tuple(_converted(x, target) for x in inputs)
    if converted and op.schema.inputs and not op.creates and not any(hasattr(x, "ref") for x in converted):
        converted = (frontend.convert(converted[0], target), *converted[1:])
    return converted, target


def _converted(x: Any, device: Device) -> Any:
    """An operand as a number or an array. NumPy numbers count as Python numbers, so that they do not widen a tensor."""
    if isinstance(x, np.generic):
        return x.item()
    if x is None or type(x) in NUMBERS or type(x) is complex or hasattr(x, "ref") or hasattr(x, "refresh"):
        return x
    return frontend.convert(x, device)


def mismatch(op: OpDef, inputs: Inputs) -> DeviceMismatchError | DeviceLostError:
    """The error for inputs on several devices, or on one before and after a loss."""
    lost = next((x.device for x in inputs if hasattr(x, "ref") and x.device.is_lost), None)
    if lost is not None:
        fix = "build models and captured steps on the new device, and load the last checkpoint"
        return DeviceLostError(message(op.name, "an input was on a device that is lost", fix=fix, device=lost))
    devices = sorted({str(x.device) for x in inputs if hasattr(x, "ref")})
    return DeviceMismatchError(
        message(
            op.name, f"inputs lie on {' and '.join(devices)}", expected="one device", fix="move them with .to(device)"
        )
    )


def unsupported_dtype(op: OpDef, dtype: DType, expected: str) -> UnsupportedDTypeError:
    """The error for an element type that an op does not take."""
    return UnsupportedDTypeError(message(op.name, f"got {dtype.name}", expected=expected, fix="cast with .to(dtype)"))


def arg(x: Any) -> Any:
    """The form in which an input reaches a launch."""
    return x if x is None or type(x) in NUMBERS else x.ref
