"""Kernels with numbers and structs by value as arguments: eager, recorded, and recorded with changing numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from polyhal.backends.common.launching.kernel_arguments import bind
from polyhal.backends.common.launching.kernel_signature import KernelSignatures
from polyhal.backends.common.launching.launch import Arguments, Scalar, Tensor
from polyhal.backends.opencl import struct_sizes
from polyhal.backends.opencl.command_buffer import record_as
from polyhal.backends.opencl.launch import KernelLaunch, argument_types
from polyhal.backends.opencl.program import CompiledKernel
from polyhal.hal import dtypes
from polyhal.hal.errors import NumberRangeError
from polyhal.hal.layout import Ref, contiguous

_ITEMS = 64
_TEXT = """
typedef struct {
    long base, step[2];
    uint rows, columns;
    float scale;
} Geometry;
__kernel void f(__global float *out, const ulong out_offset, const Geometry geometry, const int extra, const uint last) {
    const uint i = get_global_id(0);
    const long at = geometry.base + i / geometry.columns % geometry.rows * geometry.step[0] +
                    i % geometry.columns * geometry.step[1];
    out[out_offset + i] = at * geometry.scale + extra + last;
}
"""


_ARGUMENTS: Arguments = {
    "out": Tensor(0),
    "base": -(1 << 40),
    "step": (1 << 33, -3),
    "rows": 4,
    "columns": 16,
    "scale": 0.5,
    "extra": Scalar(1),
    "last": 9,
}


def _launch(runtime: Any, program: Any, args: Arguments) -> KernelLaunch:
    signature = KernelSignatures({"f.cl": _TEXT}.__getitem__).of("f.cl", "f", {})
    kernel = CompiledKernel(program, "f", argument_types(signature))
    return KernelLaunch(runtime, kernel, bind(signature, args, offsets=True), (_ITEMS,), (16,))


def test_structs_arrive_as_the_host_fills_them(device: Any) -> None:
    runtime = device.backend.runtime
    i = np.arange(_ITEMS)
    at = -(1 << 40) + i // 16 % 4 * (1 << 33) - i % 16 * 3
    program = runtime.programs.build("f.cl", _TEXT)
    launch = _launch(runtime, program, _ARGUMENTS)
    handle = device.backend.allocate(4 * (_ITEMS + 4))
    out = Ref(handle, contiguous(dtypes.float32, (_ITEMS,)), 4)
    recorded = [record_as(runtime, [lambda: launch(out, -7)], buffered=b) for b in (False, True)]
    for run in (lambda: launch(out, -7), *(lambda r=r: r.submit(()) for r in recorded)):
        result = np.zeros(_ITEMS + 4, np.float32)
        device.backend.copy_to_device(memoryview(result).cast("B"), handle, 0)
        run()
        device.backend.copy_from_device(handle, 0, memoryview(result).cast("B"))
        np.testing.assert_array_equal(
            result[4:], (at * np.float32(0.5) + np.float32(-7) + np.float32(9)).astype(np.float32)
        )
    device.backend.deallocate(handle)


def test_numbers_beyond_the_type_of_their_parameter_are_refused(device: Any) -> None:
    runtime = device.backend.runtime
    args: Arguments = {**_ARGUMENTS, "last": Scalar(2)}
    launch = _launch(runtime, runtime.programs.build("f.cl", _TEXT), args)
    out = device.empty(dtypes.float32, (_ITEMS,))
    with pytest.raises(
        NumberRangeError, match="2147483648 does not fit the type int; expected -2147483648 to 2147483647"
    ):
        launch(out, 1 << 31, 0)
    with pytest.raises(NumberRangeError, match="-1 does not fit the type uint; expected 0 to 4294967295"):
        launch(out, 0, -1)


@pytest.mark.parametrize("wanted", [36, 40])
def test_a_struct_has_the_size_that_the_driver_accepts(
    wanted: int, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mesa before 23.2 omits the tail padding and refuses the C type's size; later versions refuse the shorter size."""
    layout = KernelSignatures({"f.cl": _TEXT}.__getitem__).of("f.cl", "f", {}).structs["geometry"]
    assert layout.itemsize == 40

    class Kernel:
        def set_arg(self, place: int, value: bytes) -> None:
            if len(value) != wanted:
                raise cl.LogicError(cl._cl._ErrorRecord("", cl.status_code.INVALID_ARG_SIZE, "clSetKernelArg"))

    assert struct_sizes.taken(Kernel(), 2, layout) == wanted  # type: ignore[arg-type]
    monkeypatch.setattr(struct_sizes, "taken", lambda kernel, place, layout: wanted)
    runtime = device.backend.runtime
    launch = _launch(runtime, runtime.programs.build("f.cl", _TEXT), _ARGUMENTS)
    assert [len(v) for v in launch._template if isinstance(v, bytes)] == [wanted]
