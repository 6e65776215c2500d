"""Calls of ops on their samples, cast to the dtype under test and to the dtypes that a device stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.ops.lowering import SourceKernel
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.tensor_like import Array
from polyhal.hal.ops.traits import Trait
from polyhal.hal.system.reference.op_calls import OpCall, is_number
from polyhal.hal.testing.kit.scope import Scope

SEED = 20240229


def cast_sample(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Cast sample values to `dtype`: bool by sign, integers by truncation, unsigned ones by magnitude."""
    if array.dtype == dtype.numpy:
        return array
    with np.errstate(all="ignore"):
        if dtype.kind == "bool":
            return np.asarray(array > 0)
        if dtype.kind == "float":
            return array.astype(dtype.numpy)
        whole = np.nan_to_num(np.trunc(array), nan=0.0, posinf=100.0, neginf=-100.0)
        return np.asarray((np.abs(whole) if dtype.kind == "uint" else whole).astype(dtype.numpy))


def sample_calls(op: OpDef, dtype: DType | None) -> list[OpCall]:
    """Return every sample of `op` in `dtype`; None leaves the samples unchanged."""
    if op.tests.samples is None:
        return []
    samples = op.tests.samples(np.random.default_rng(SEED))
    return [
        OpCall(
            op,
            tuple(_sample_value(x, op, dtype, number) for x in sample.inputs),
            {**op.schema.params, **sample.params},
            sample,
            number,
        )
        for number, sample in enumerate(samples)
    ]


def _sample_value(x: Array | float | None, op: OpDef, dtype: DType | None, number: int) -> Any:
    """Convert an input of sample `number` for a test in `dtype`.

    Arrays of float64 are cast to `dtype`; arrays of float32 are statistics and cast to the accumulation dtype of
    `dtype`. Integer arrays of pointwise ops are operands and also cast; of other ops they are indices, which alternate
    between int64 and int32. Other arrays, and arrays of user kernels, which declare their types, are unchanged.
    """
    if x is None or is_number(x):
        return x
    array = np.asarray(x)
    operand = array.dtype == np.float64 or (Trait.POINTWISE in op.traits and array.dtype.kind in "iu")
    if dtype is not None and operand:
        return cast_sample(array, dtype)
    if dtype is not None and array.dtype == np.float32 and dtype.is_floating_point:
        return cast_sample(array, dtypes.accumulator(dtype))
    alternates = array.dtype == np.int64 and op.strategy(SourceKernel) is None
    return array.astype(np.int32) if alternates and number % 2 else array


def runnable_calls(device: Device, op: OpDef, dtype: DType | None, scope: Scope) -> list[OpCall]:
    """Return the calls of `op` in `dtype` that are in scope and whose inputs and outputs the device can store."""
    calls = [_stored(c, device) for c in sample_calls(op, dtype)]
    if scope.few_shapes:
        from polyhal.hal.testing.kit.few_shapes import few

        return few([c for c in calls if _fits(c, device, scope)])
    # Empty calls build no kernels, and special values fail first in half precision: both always run.
    sampled = frozenset(c.number for c in calls if not c.sample.special and c.computes)
    chosen = scope.sampled(op, dtype, sorted(sampled))
    return [c for c in calls if (c.number in chosen or c.number not in sampled) and _fits(c, device, scope)]


def _stored(call: OpCall, device: Device) -> OpCall:
    """Return the call with its integers in the dtypes that the device stores, if they fit."""
    if not device.stand_ins:
        return call
    return replace(call, values=tuple(_stored_value(v, device) for v in call.values), stand_ins=device.stand_ins)


def _stored_value(value: Any, device: Device) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    dtype = as_dtype(value.dtype)
    narrow = value.astype(device.stand_ins.get(dtype, dtype).numpy)
    return narrow if narrow.dtype != value.dtype and np.array_equal(narrow, value) else value


def _fits(call: OpCall, device: Device, scope: Scope) -> bool:
    inputs = {as_dtype(v.dtype) for v in call.values if isinstance(v, np.ndarray)}
    outputs = {s.dtype for s in call.outputs()}
    return scope.accepts(call.elements) and device.capabilities.storage >= inputs | outputs
