"""Calls of single members of the contract: inputs anywhere in their buffers, outputs in guarded memory, results checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.layout import ALIGNMENT, contiguous
from polyhal.hal.system.reference.tolerances import Bound, check_close
from polyhal.hal.testing.kit.guards import GuardedOutput
from polyhal.hal.testing.kit.input_layouts import InputLayout, place_input
from polyhal.hal.testing.kit.sample_calls import cast_sample
from polyhal.tensor import Tensor

MemberCheck = Callable[[], None]


def draw(rng: np.random.Generator, size: Any, dtype: DType, low: float, high: float) -> np.ndarray:
    """Draw `size` elements of an interval, in `dtype`."""
    return cast_sample(rng.uniform(low, high, size), dtype)


def widened(array: np.ndarray) -> np.ndarray:
    """Return float arrays in float64, others unchanged."""
    return array.astype(np.float64) if as_dtype(array.dtype).is_floating_point else array


def compute_dtypes(device: Device) -> list[DType]:
    """Return the dtypes in which the device computes."""
    return [d for d in dtypes.ALL if d in device.capabilities.compute]


def call_member(member: Callable[..., None], *arguments: Any) -> None:
    """Call a member of the contract with the refs of tensors, which are kept alive during the call."""
    member(*[a.ref if isinstance(a, Tensor) else a for a in arguments])


def as_input(array: np.ndarray, device: Device, turn: int) -> Tensor:
    """Return a contiguous input; `turn` rotates through its offsets in the buffer."""
    layouts = (InputLayout.CONTIGUOUS, InputLayout.OFFSET, InputLayout.UNALIGNED)
    return place_input(array, layouts[turn % 3], device)


def guarded_output(dtype: DType, shape: tuple[int, ...], device: Device, turn: int) -> GuardedOutput:
    """Return a contiguous output; `turn` rotates through its offsets in a poisoned buffer."""
    return GuardedOutput(contiguous(dtype, shape), device, (0, ALIGNMENT, ALIGNMENT + 3)[turn % 3])


def check_output(out: GuardedOutput, expected: np.ndarray, bound: Bound, what: str) -> None:
    """Raise AssertionError unless the output is as expected and memory outside it is unchanged."""
    check_close(out.tensor.numpy(), expected, out.tensor.dtype, bound, what)
    out.check(what)
