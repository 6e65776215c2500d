"""Checks of a device's description and memory: allocations, transfers, fills, copies of any layout, order of execution."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceInfo
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, finfo
from polyhal.hal.layout import ALIGNMENT, contiguous
from polyhal.hal.system.reference.tolerances import EXACT, Bound, check_close
from polyhal.hal.testing.kit.guards import GuardedOutput
from polyhal.hal.testing.kit.input_layouts import INPUT_LAYOUTS, InputLayout, place_input, values_in_layout
from polyhal.hal.testing.kit.member_calls import as_input, call_member, check_output, draw, guarded_output
from polyhal.hal.testing.kit.sample_calls import SEED, cast_sample
from polyhal.hal.testing.kit.scope import Scope


def identity(device: Device) -> None:
    """Check that info and capabilities have the right types and are consistent."""
    info, capabilities = device.info, device.capabilities
    assert isinstance(info, DeviceInfo), f"info is {info!r}"
    assert isinstance(capabilities, Capabilities), f"capabilities are {capabilities!r}"
    assert info.name, "info.name is empty"
    assert info.id, "info.id is empty"
    assert capabilities.compute <= capabilities.storage, "compute holds dtypes that storage lacks"
    for dtype in sorted(dtypes.REQUIRED, key=lambda d: d.name):
        assert dtype in capabilities.compute, f"{dtype.name} must be in storage and in compute"
    assert capabilities.limits.row_alignment > 0, "row_alignment must be positive"
    assert device.backend.memory_available() >= 0, "memory_available is negative"


def memory(device: Device) -> None:
    """Check that allocations are independent of each other and survive the release of others."""
    backend = device.backend
    sizes = (1, 3, 256, 4096, 100_001)
    handles = [backend.allocate(n) for n in sizes]
    try:
        for k, (handle, n) in enumerate(zip(handles, sizes, strict=True)):
            backend.copy_to_device(memoryview(bytes([k + 1]) * n), handle, 0)
        backend.deallocate(handles.pop(1))
        for k, (handle, n) in enumerate(zip(handles, (sizes[0], *sizes[2:]), strict=True)):
            out = bytearray(n)
            backend.copy_from_device(handle, 0, memoryview(out))
            assert set(out) == {k + 1 if k == 0 else k + 2}, (
                f"an allocation of {n} bytes does not hold the written bytes"
            )
    finally:
        for handle in handles:
            backend.deallocate(handle)
    backend.synchronize()


def transfers(device: Device) -> None:
    """Check transfers of byte ranges at any offset; the source may change as soon as the upload returns."""
    backend = device.backend
    handle = backend.allocate(1024)
    try:
        expected = bytearray(1024)
        backend.copy_to_device(memoryview(bytes(1024)), handle, 0)
        for offset, n in ((0, 16), (4, 8), (1, 3), (511, 257), (1023, 1), (64, 512)):
            source = bytearray((offset * 7 + i) % 251 for i in range(n))
            expected[offset : offset + n] = source
            backend.copy_to_device(memoryview(source), handle, offset)
            source[:] = bytes(n)  # a backend that still reads it must have copied it
        for offset, n in ((0, 1024), (3, 5), (1020, 4), (255, 513)):
            out = bytearray(n)
            backend.copy_from_device(handle, offset, memoryview(out))
            assert out == expected[offset : offset + n], (
                f"{n} bytes from byte {offset} differ; offsets count bytes, and the source of copy_to_device changes as "
                "soon as the call returns"
            )
    finally:
        backend.deallocate(handle)


# --- fills and copies -----------------------------------------------------------------------------------------------


def fill(device: Device) -> None:
    """Check `fill` with numbers of every kind, into contiguous and strided outputs of every dtype."""
    for position, dtype in enumerate(d for d in dtypes.ALL if d in device.capabilities.storage):
        numbers: Sequence[Any] = (0, 1, True, 7) if dtype.kind != "bool" else (False, True, 0, 1)
        if dtype.is_floating_point:
            numbers = (*numbers, -1.5, float("inf"), float("nan"), float(finfo(dtype).max))
        elif dtype.is_integral:
            numbers = (*numbers, dtypes.iinfo(dtype).max, dtypes.iinfo(dtype).min)
        for turn, value in enumerate(numbers):
            shape = ((), (3, 5), (2, 3, 4), (37,))[(position + turn % 2) % 4]
            out = GuardedOutput(contiguous(dtype, shape), device, ALIGNMENT + turn % 3, strided=turn % 2 == 1)
            call_member(device.backend.fill, value, out.tensor)
            check_output(
                out,
                np.full(shape, value, dtype.numpy),
                Bound(EXACT),
                f"fill of {dtype.name}{list(shape)} with {value!r}",
            )


def copy_layouts(device: Device, scope: Scope) -> None:
    """Check `copy` from every layout into contiguous and strided outputs, for elements of 1, 2, 4 and 8 bytes."""
    shapes: tuple[tuple[int, ...], ...] = ((), (1,), (37,), (5, 6), (3, 4, 5), (2, 1, 3, 4), (2, 2, 2, 2, 2)) + (
        () if scope.small else ((33, 65), (7, 300))
    )
    shapes = ((37,), (3, 4, 5)) if scope.few_shapes else shapes
    kinds = [
        d for d in (dtypes.uint8, dtypes.float16, dtypes.float32, dtypes.int64) if d in device.capabilities.storage
    ]
    for turn, (shape, layout) in enumerate(itertools.product(shapes, INPUT_LAYOUTS)):
        for dtype in kinds if scope.full else (kinds[turn % len(kinds)],):
            x = values_in_layout(draw(np.random.default_rng(SEED + turn), shape, dtype, -90.0, 90.0), layout)
            out = GuardedOutput(contiguous(dtype, shape), device, ALIGNMENT + turn % 2, strided=turn % 3 == 0)
            call_member(device.backend.copy, place_input(x, layout, device), out.tensor)
            check_output(out, x, Bound(EXACT), f"copy of {dtype.name}{list(shape)}, {layout}, into {out.tensor.spec}")


def copy_casts(device: Device, scope: Scope) -> None:
    """Check that `copy` between dtypes casts by C's rules: truncation towards zero, wrapping integers, non-zero is True."""
    storage = [d for d in dtypes.ALL if d in device.capabilities.storage]
    for i, source in enumerate(storage):
        # Two targets for each source; the op `cast` is tested on all pairs.
        targets = storage if scope.full else [storage[(i + k) % len(storage)] for k in (1, 4)]
        for target in targets:
            x = _castable(source, target)
            out = guarded_output(target, x.shape, device, i)
            call_member(device.backend.copy, as_input(x, device, i), out.tensor)
            with np.errstate(all="ignore"):
                expected = x.astype(
                    np.float64 if source.is_floating_point and target.is_floating_point else target.numpy
                )
            check_output(out, expected, Bound(EXACT), f"copy from {source.name} to {target.name}")


def _castable(source: DType, target: DType) -> np.ndarray:
    """Return values of `source` whose cast to `target` is defined in C."""
    if source.is_floating_point:
        values = np.array(
            [0.0, -0.0, 0.5, 1.5, 2.75, 100.0, 3.999]
            + ([] if target.kind in ("uint", "bool") else [-0.5, -1.5, -100.0])
        )
        return cast_sample(values, source)
    if source.kind == "bool":
        return np.array([True, False, True])
    low, high = dtypes.iinfo(source).min, dtypes.iinfo(source).max
    return np.array([0, 1, 100, high, low, high // 3], source.numpy)


def many_launches(device: Device) -> None:
    """Check that a long chain of dependent launches on reused memory keeps its order."""
    x = np.arange(64, dtype=np.float32)
    backend = device.backend
    a, b = (place_input(x, InputLayout.CONTIGUOUS, device) for _ in range(2))
    one = place_input(np.ones(64, np.float32), InputLayout.CONTIGUOUS, device)
    for _ in range(200):
        backend.binary("add", a.ref, one.ref, b.ref)
        backend.copy(b.ref, a.ref)
    backend.synchronize()
    check_close(a.numpy(), x + 200.0, dtypes.float32, Bound(EXACT), "200 dependent additions")
