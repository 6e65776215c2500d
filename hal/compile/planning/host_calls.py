"""Calls of Python functions on elements of tensors: downloads, the call, and uploads of its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.host_work import HOST_WORK, check_policy
from polyhal.hal.core.memory.host_bytes import byte_view
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.ops.layout.host_call import HostFunction, Results, called

if TYPE_CHECKING:
    from polyhal.hal.core.execution.op_plan import Run
    from polyhal.hal.device import Device


def host_call_run(device: Device, function: HostFunction, results: Results) -> Run:
    """Return a run of a call into given memory. Raises FallbackRefusedError if the policy forbids work on the host."""
    check_policy("host_call", device, "a Python function would run on the host", declared=True)

    def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        made = called(function, results, _downloaded(device, args))
        for array, out in zip(made, outs, strict=True):
            if out.size:
                dense = array.astype(out.dtype.numpy, copy=False)
                device.backend.copy_to_device(byte_view(dense), out.handle, out.offset * out.dtype.itemsize)
        HOST_WORK.count("host_call", sum(x.spec.nbytes for x in (*args, *outs) if isinstance(x, Ref)))

    return run


def call_now(device: Device, function: HostFunction, results: Results, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Call a function on arrays and numbers. Returns its results as new arrays. Raises FallbackRefusedError."""
    specs = [device.stand_ins.get(dtype, dtype) for dtype, _ in results]
    run = host_call_run(device, function, results)
    memory = [device.reserve(contiguous(dtype, tuple(shape))) for dtype, (_, shape) in zip(specs, results, strict=True)]
    run([getattr(x, "ref", x) for x in inputs], [ref for _, ref in memory])
    return tuple(dispatch.frontend.wrap(device, buffer, ref) for buffer, ref in memory)


def _downloaded(device: Device, args: Sequence[Any]) -> list[Any]:
    return [device.download(x) if isinstance(x, Ref) else x for x in args]
