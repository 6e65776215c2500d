"""Random steps have equal results op by op, captured and optimised, and in NumPy.

Devices that fuse ops may contract a product and a sum into one operation that rounds once, and they sum in another order:
results then differ by some units in the last place of the largest number on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import polyhal as ph
from polyhal.hal.device import Device
from polyhal.steps.jit import jit

from .random_steps import STATE, Instruction, inputs, instructions, run, special, tensors
from .rich_device import rich_device

_CALLS = 4
"""Eager, recorded, recorded again, replayed."""


def _check(program: Sequence[Instruction], device: Device, units: float) -> None:
    """Compare three ways to run a step, and its final state; the first two may differ by `units` of float32."""
    start = np.random.default_rng(99).uniform(-1, 1, STATE).astype(np.float32)
    eager_state, state = (ph.Tensor(start, device=device) for _ in range(2))
    exact_state = start.astype(np.float64)
    captured = jit(lambda *values: run(program, list(values), state, False))
    for call in range(_CALLS):
        arrays = [a.astype(np.float32) for a in inputs(call)]
        expected = run(program, tensors(arrays, device), eager_state, False)
        found = captured(*tensors(arrays, device))
        exact = run(program, [a.astype(np.float64) for a in arrays], exact_state, True)
        for got, wanted in [*zip(found, expected, strict=True), (state, eager_state)]:
            if units:
                scale = max(1.0, float(np.abs(wanted.numpy()).max(initial=0)))
                np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=0, atol=units * scale * 2**-24)
            else:
                np.testing.assert_array_equal(got.numpy(), wanted.numpy())
        for got, wanted in zip(found, exact, strict=True):
            scale = max(1.0, float(np.abs(wanted).max(initial=0)))
            np.testing.assert_allclose(got.numpy(), wanted, rtol=0, atol=2e-5 * scale)
        np.testing.assert_allclose(state.numpy(), exact_state, rtol=0, atol=2e-5)
    if not units:
        arrays = [a.astype(np.float32) for a in special()]
        expected = run(program, tensors(arrays, device), eager_state, False)
        found = captured(*tensors(arrays, device))
        for got, wanted in [*zip(found, expected, strict=True), (state, eager_state)]:
            np.testing.assert_array_equal(got.numpy(), wanted.numpy())
            numbers = ~np.isnan(wanted.numpy())
            np.testing.assert_array_equal(np.signbit(got.numpy())[numbers], np.signbit(wanted.numpy())[numbers])


_FEW = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", ["numpy", "numpy:contiguous_only"])
@_FEW
@given(program=instructions)
def test_bit_by_bit_where_ops_run_as_written(name: str, program: list[Instruction]) -> None:
    _check(program, Device(name), 0)


@_FEW
@given(program=instructions)
def test_on_a_device_that_fuses_everything(program: list[Instruction]) -> None:
    _check(program, rich_device(), 16)


def test_each_single_op() -> None:
    """Rewrites of single ops are met for certain, with the special values."""
    for kind in (0, 2, 3, 4, 7):
        for choice in range(21):
            _check([(kind, 0, 1, choice), (kind, 2, 0, choice)], Device("numpy"), 0)


_FIXED: list[list[Instruction]] = [
    # A product with an epilogue, a written-out softmax, a part of the state replaced.
    [(5, 0, 0, 0), (0, 4, 0, 8), (7, 5, 0, 0), (3, 6, 0, 1), (2, 6, 7, 2), (6, 1, 0, 2), (2, 9, 1, 0)],
    # Elementwise ops across a reshape, a reduction after them.
    [(0, 2, 0, 9), (4, 4, 0, 0), (0, 5, 0, 7), (0, 6, 0, 2), (3, 7, 0, 1), (6, 0, 0, 1), (2, 8, 9, 1)],
]


@pytest.mark.parametrize("program", _FIXED)
def test_on_each_device(program: list[Instruction], device: Device) -> None:
    _check(program, device, 16)
