"""Running an op through a required member of the contract, which takes contiguous inputs of one dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, ScalarSpec, Spec, View, contiguous, place
from polyhal.hal.memory.pool import bucket
from polyhal.hal.ops.lowering import CoreCall
from polyhal.hal.ops.schema import Specs
from polyhal.hal.protocol import Number

if TYPE_CHECKING:
    from polyhal.hal.device import Device

Run = Callable[[Sequence[Any], Sequence[Ref]], None]
"""Runs with inputs (refs, numbers, None) and outputs."""

_WIDER: dict[str, tuple[DType, ...]] = {
    "float": (dtypes.float32, dtypes.float64),
    "int": (dtypes.int32, dtypes.int64),
    "uint": (dtypes.uint32, dtypes.uint64, dtypes.int32),
    "bool": (dtypes.uint32, dtypes.int32),
}
"""What a device may compute a kind in when it does not compute the dtype itself, in order of preference."""


def core_run(device: Device, call: CoreCall, inputs: Specs, output: Spec) -> tuple[Run, int] | None:
    """Present every input contiguous and in a dtype the backend computes in, call, and bring the result home.

    Returns the run and the bytes that it takes from the pool while it lasts, or None where the device computes in no dtype
    that holds an input or the result.
    """
    backend = device.backend
    storage, compute = backend.capabilities.storage, backend.capabilities.compute
    take, copy, fill, run_core = device.pool.take, backend.copy, backend.fill, call.run

    def computing(dtype: DType) -> DType | None:
        if dtype in compute and dtype in storage:
            return dtype
        wider = _WIDER[dtype.kind]
        return next((w for w in wider if w.itemsize >= dtype.itemsize and w in compute and w in storage), None)

    prepare: list[Callable[[Any, list[Any]], Any]] = []
    taken = 0
    for spec, wanted in zip(inputs, call.inputs, strict=True):
        if wanted is None:
            continue
        dtype = wanted.dtype if wanted.exact else computing(wanted.dtype)
        if dtype is None:
            return None
        target = contiguous(dtype, wanted.shape)
        size = bucket(target.nbytes)
        if isinstance(spec, ScalarSpec):

            def from_number(x: Number, keep: list[Any], target: Spec = target, size: int = size) -> Ref:
                buffer = take(size)
                keep.append(buffer)
                ref = Ref(buffer.handle, target, 0)
                fill(x, ref)
                return ref

            prepare.append(from_number)
            taken += size
            continue
        assert isinstance(spec, Spec)
        view = wanted.view or View(spec.shape, spec.strides)
        layout = place(spec, view)
        if layout.is_contiguous and spec.dtype is dtype:
            placed = target._replace(aligned=layout.aligned)

            def direct(x: Ref, keep: list[Any], target: Spec = placed, delta: int = view.offset) -> Ref:
                return Ref(x.handle, target, x.offset + delta)

            prepare.append(direct)
        else:
            dense = contiguous(dtype, view.shape)

            def copied(
                x: Ref,
                keep: list[Any],
                layout: Spec = layout,
                dense: Spec = dense,
                target: Spec = target,
                size: int = size,
                delta: int = view.offset,
            ) -> Ref:
                buffer = take(size)
                keep.append(buffer)
                copy(Ref(x.handle, layout, x.offset + delta), Ref(buffer.handle, dense, 0))
                return Ref(buffer.handle, target, 0)

            prepare.append(copied)
            taken += size
    used = [i for i, wanted in enumerate(call.inputs) if wanted is not None]
    result = call.result if call.result_exact else computing(call.result)
    if result is None:
        return None
    shaped = contiguous(result, call.shape)
    if result is output.dtype:
        shaped = shaped._replace(aligned=output.aligned)

        def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
            keep: list[Any] = []
            refs = [p(args[i], keep) for p, i in zip(prepare, used, strict=True)]
            run_core(*refs, Ref(outs[0].handle, shaped, outs[0].offset))

        return run, taken
    size = bucket(shaped.nbytes)
    dense_output = contiguous(result, output.shape)

    def run_and_cast(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        keep: list[Any] = []
        refs = [p(args[i], keep) for p, i in zip(prepare, used, strict=True)]
        buffer = take(size)
        run_core(*refs, Ref(buffer.handle, shaped, 0))
        copy(Ref(buffer.handle, dense_output, 0), outs[0])

    return run_and_cast, taken + size
