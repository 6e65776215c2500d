"""Casts to 16-bit floats round in captured steps, where no tensor of that dtype is written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import polyhal
from polyhal import Device, Tensor, jit

_HALVES = [polyhal.float16, polyhal.bfloat16]
_CALLS = 4
"""Eager, recorded, recorded again, replayed."""


def _replayed(function: Callable[..., Tensor], *inputs: Tensor) -> np.ndarray:
    step = jit(function)
    return [step(*inputs).numpy() for _ in range(_CALLS)][-1]


@pytest.mark.parametrize("half", _HALVES, ids=str)
def test_a_chain_rounds_as_numpy_does(device: Device, half: polyhal.DType) -> None:
    """Normal, subnormal and infinite results in 16 bits, ties, zeros of both signs, and NaN."""
    scale = np.array([1e-7, 1, 1e5], np.float32)[np.arange(999) % 3]
    x = np.random.default_rng(0).standard_normal(999).astype(np.float32) * scale
    x[:6] = 0.0, -0.0, np.inf, np.nan, 2049, 257
    found = _replayed(lambda t: t.to(half).float() * 2, polyhal.tensor(x, device=device))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(half.numpy).astype(np.float32) * 2)


@pytest.mark.parametrize("half", _HALVES, ids=str)
def test_a_sum_adds_rounded_values(device: Device, half: polyhal.DType) -> None:
    """2049 has 12 significant bits and 257 has 9: sums of 32 of their neighbours are exact in float32."""
    value, rounded = (2049, 2048) if half is polyhal.float16 else (257, 256)
    x = polyhal.full((3, 32), value, device=device, dtype=polyhal.float32)
    found = _replayed(lambda t: (t * 1.0).to(half).sum(1, dtype=polyhal.float32), x)
    np.testing.assert_array_equal(found, [32 * rounded] * 3)


@pytest.mark.parametrize("half", _HALVES, ids=str)
def test_a_product_is_rounded_before_ops_that_follow(device: Device, half: polyhal.DType) -> None:
    value, rounded = (2049, 2048) if half is polyhal.float16 else (257, 256)
    x, w = polyhal.full((5, 1), value, device=device, dtype=polyhal.float32), polyhal.ones(7, 1, device=device)
    found = _replayed(lambda a, b: polyhal.nn.functional.linear(a, b).to(half).float() + 1, x, w)
    np.testing.assert_array_equal(found, np.full((5, 7), rounded + 1))


def test_small_tensors_that_share_a_launch(device: Device) -> None:
    xs = [polyhal.full((n,), 2049.0, device=device) for n in (3, 5, 7, 9, 11)]

    def step(*tensors: Tensor) -> list[Tensor]:
        return [t.half().float() - 1 for t in tensors]

    captured = jit(step)
    for found in [captured(*xs) for _ in range(_CALLS)][-1]:
        np.testing.assert_array_equal(found.numpy(), np.full(found.shape, 2047))
