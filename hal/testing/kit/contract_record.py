"""Checks of command buffers: core members are recorded without running, and each submission runs them on the bound memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.command_buffers import BindingSlot, SupportsCommandBuffers
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.testing.kit.member_calls import MemberCheck
from polyhal.tensor import Tensor

_ROWS, _COLUMNS = 3, 5
_SHAPE = (_ROWS, _COLUMNS)


def checks(device: Device) -> Iterator[tuple[str, MemberCheck]]:
    """Yield the checks by name; none if the device has no command buffers."""
    backend: Any = device.backend
    if not isinstance(backend, SupportsCommandBuffers):
        return
    yield "record/members", lambda: members(device, backend)
    yield "record/numbers", lambda: numbers(device, backend)
    yield "record/origins", lambda: origins(device, backend)


def members(device: Device, backend: Any) -> None:
    """Check every core member in a command buffer that reads from one slot and writes to another."""
    for name, (call, expected) in _programs(device, backend).items():
        source, target = BindingSlot(), BindingSlot()
        x = Ref(source, contiguous(dtypes.float32, _SHAPE)._replace(aligned=False), 0)
        shape = np.shape(expected(np.zeros(_SHAPE, np.float32)))
        y = Ref(target, contiguous(dtypes.float32, shape)._replace(aligned=False), 0)
        outputs = [_tensor(np.full(shape, 7.0), device) for _ in range(2)]
        target.handle = outputs[0].buffer.handle
        inputs = [_tensor(np.arange(15.0).reshape(_SHAPE) / 8 + k, device) for k in range(2)]
        source.handle = inputs[0].buffer.handle
        commands = backend.record([partial(call, x, y)])
        assert (outputs[0].numpy() == 7).all(), f"{name} ran while it was recorded"
        for given, out in zip(inputs, outputs, strict=True):
            source.handle, target.handle = given.buffer.handle, out.buffer.handle
            commands.submit([source, target])
            result = expected(given.numpy())
            assert np.allclose(out.numpy(), result, rtol=1e-5, atol=1e-6), f"{name} in a command buffer is wrong"


def _programs(
    device: Device, backend: Any
) -> dict[str, tuple[Callable[[Ref, Ref], None], Callable[[np.ndarray], np.ndarray]]]:
    """Return a call of each core member with input and output, and NumPy's function for the result."""
    weights = _tensor(np.arange(10.0).reshape(1, _COLUMNS, 2) / 4, device)
    index = _tensor(np.array([2, 0]), device, dtypes.int32)
    condition = _tensor(np.arange(15).reshape(_SHAPE) % 2 == 0, device, dtypes.bool_)
    batch = Spec(dtypes.float32, (1, *_SHAPE), (15, _COLUMNS, 1), False)
    product = Spec(dtypes.float32, (1, _ROWS, 2), (_ROWS * 2, 2, 1), False)
    rows = contiguous(dtypes.float32, (2, _COLUMNS))._replace(aligned=False)
    zeros = _tensor(np.zeros(_SHAPE), device)

    def added(x: np.ndarray) -> np.ndarray:
        out = np.zeros(_SHAPE, np.float32)
        np.add.at(out, index.numpy(), x[:2])
        return out

    def scatter(x: Ref, out: Ref) -> None:
        backend.fill(0.0, out)
        backend.scatter_add(index.ref, Ref(x.handle, rows, 0), out)

    return {
        "copy": (backend.copy, lambda x: x),
        "unary": (partial(backend.unary, "neg"), np.negative),
        "binary": (lambda x, out: backend.binary("add", x, x, out), lambda x: x + x),
        "where": (
            lambda x, out: backend.where(condition.ref, x, zeros.ref, out),
            lambda x: np.where(condition.numpy(), x, 0),
        ),
        "reduce": (partial(backend.reduce, "sum"), lambda x: x.sum(-1)),
        "matmul": (
            lambda x, out: backend.matmul(Ref(x.handle, batch, 0), weights.ref, Ref(out.handle, product, 0)),
            lambda x: x @ weights.numpy()[0],
        ),
        "gather": (lambda x, out: backend.gather(index.ref, x, out), lambda x: x[index.numpy()]),
        "scatter_add": (scatter, added),
    }


def numbers(device: Device, backend: Any) -> None:
    """Check that `fill` stores the value that a runtime scalar has at each submission, in every required dtype."""
    for dtype in sorted(dtypes.REQUIRED, key=lambda d: d.name):
        values = iter((1, 0, 5))
        scalar = RuntimeScalar(lambda values=values: next(values))  # type: ignore[misc]
        out = _tensor(np.zeros(_SHAPE), device, dtype)
        commands = backend.record([partial(backend.fill, scalar, out.ref)])
        for expected in (1, 0, 5):
            commands.submit([])
            found = out.numpy()
            assert (found == np.array(expected).astype(dtype.numpy)).all(), (
                f"fill of {dtype.name} stored {found.ravel()[0]} where the runtime scalar was {expected}"
            )
            if expected != 5:
                scalar.refresh()


def origins(device: Device, backend: Any) -> None:
    """Check that the launches of a command buffer refer to their calls, in order."""
    x, y = (_tensor(np.ones(_SHAPE), device) for _ in range(2))
    calls = [
        partial(backend.fill, 2.0, x.ref),
        partial(backend.binary, "add", x.ref, x.ref, y.ref),
        partial(backend.copy, y.ref, x.ref),
    ]
    commands = backend.record(calls)
    made = [launch.call for launch in commands.launches]
    assert sorted(set(made)) == [0, 1, 2], f"three calls were recorded, but the launches refer to {made}"
    assert made == sorted(made), f"the launches are out of order: {made}"
    for _ in range(2):
        commands.submit([])
    assert (x.numpy() == 4).all(), "calls of a command buffer ran in another order than recorded"


def _tensor(array: np.ndarray, device: Device, dtype: dtypes.DType = dtypes.float32) -> Tensor:
    return Tensor(np.ascontiguousarray(array, dtype.numpy), device=device)
