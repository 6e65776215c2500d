"""Calling one member of the contract: inputs anywhere in their buffers, outputs in poisoned memory, results checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.layout import ALIGNMENT, contiguous
from polyhal.hal.testing.kit.arrangements import Arrangement, Guarded, arrange
from polyhal.hal.testing.kit.tolerances import Bound, check_close
from polyhal.hal.testing.kit.values import cast
from polyhal.tensor import Tensor

Check = Callable[[], None]


def draw(rng: np.random.Generator, size: Any, dtype: DType, low: float, high: float) -> np.ndarray:
    """`size` elements from an interval, in `dtype`."""
    return cast(rng.uniform(low, high, size), dtype)


def wide(array: np.ndarray) -> np.ndarray:
    """Float arrays in float64, others as they are."""
    return array.astype(np.float64) if as_dtype(array.dtype).is_floating_point else array


def computed(device: Device) -> list[DType]:
    """The dtypes in which the device does arithmetic."""
    return [d for d in dtypes.ALL if d in device.capabilities.compute]


def launch(member: Callable[..., None], *arguments: Any) -> None:
    """Call a member of the contract with the references of tensors, which stay alive meanwhile."""
    member(*[a.ref if isinstance(a, Tensor) else a for a in arguments])


def given(array: np.ndarray, device: Device, turn: int) -> Tensor:
    """A contiguous tensor, which may start anywhere in its buffer."""
    return arrange(array, (Arrangement.CONTIGUOUS, Arrangement.OFFSET, Arrangement.UNALIGNED)[turn % 3], device)


def guarded(dtype: DType, shape: tuple[int, ...], device: Device, turn: int) -> Guarded:
    """An output of a shape, contiguous, anywhere in a poisoned buffer."""
    return Guarded(contiguous(dtype, shape), device, (0, ALIGNMENT, ALIGNMENT + 3)[turn % 3])


def finish(out: Guarded, expected: np.ndarray, bound: Bound, what: str) -> None:
    """Check what was written, and that nothing was written beside it."""
    check_close(out.tensor.numpy(), expected, out.tensor.dtype, bound, what)
    out.check(what)
