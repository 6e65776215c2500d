"""Captured groups of elementwise ops have the values of eager ops, also where a compiler could cancel or reassociate."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device

_SPECIAL = [0.0, -0.0, 1.0, -2.0, 0.3, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e20]
_PAIRS = np.float32(list(itertools.product(_SPECIAL, repeat=2))).T
_CANCELLING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a number": lambda x, y: polyhal.square(x - x),
    "a computed number": lambda x, y: polyhal.exp(x) - polyhal.exp(x) + y * 0.5,
    "a term": lambda x, y: (x + y) - x,
    "factors in another order": lambda x, y: x * y - y * x,
    "an interpolation": lambda x, y: polyhal.square(polyhal.lerp(x, x, 0.3)),
    "a factor": lambda x, y: polyhal.addcmul(x * 0.5, y, x, value=-1.0),
    "a term of a product": lambda x, y: polyhal.addcmul(x, y, y) - x,
}
_FACTORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "twice a product": lambda x, y: x * y + x * y,
    "products with one number": lambda x, y: x * 0.5 + x * y,
    "halves": lambda x, y: x * 0.5 + y * 0.5,
}


@pytest.fixture
def device(parity_device: Device) -> Device:
    return parity_device


def _captured(step: Callable[..., Tensor], device: Device, *values: np.ndarray) -> np.ndarray:
    """Return the result of the second call of a captured step, the first replay."""
    tensors = [polyhal.tensor(v, device=device) for v in values]
    function = polyhal.jit(step)
    return [function(*tensors).numpy() for _ in range(2)][-1]


@pytest.mark.parametrize("name", _CANCELLING)
def test_infinities_do_not_cancel(device: Device, name: str) -> None:
    with np.errstate(all="ignore"):
        expected = _CANCELLING[name](*(polyhal.tensor(v, device="numpy") for v in _PAIRS)).numpy()
    assert np.isnan(expected[np.isinf(_PAIRS).all(0)]).any()
    np.testing.assert_allclose(_captured(_CANCELLING[name], device, *_PAIRS), expected, rtol=1e-6)


@pytest.mark.parametrize("name", _FACTORS)
def test_sums_of_products_are_not_products_of_sums(device: Device, name: str) -> None:
    with np.errstate(all="ignore"):
        expected = _FACTORS[name](*(polyhal.tensor(v, device="numpy") for v in _PAIRS)).numpy()
    np.testing.assert_allclose(_captured(_FACTORS[name], device, *_PAIRS), expected, rtol=1e-6)


_LARGE = 2.0**17
"""Its square absorbs a term of 1."""
_SUMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "products": lambda x, y: x * y - y * 131072.0 + 1.0,
    "a product added to another": lambda x, y: polyhal.addcmul(x * 131072.0, x, y, value=-1.0) + 1.0,
    "under a function": lambda x, y: polyhal.exp2(x * x - y * 131072.0 + 1.0) - 1.0,
}


@pytest.mark.parametrize("name", _SUMS)
def test_products_cancel_before_a_term_is_added(device: Device, name: str) -> None:
    large = np.full(9, _LARGE, np.float32)
    np.testing.assert_array_equal(_captured(_SUMS[name], device, large, large), np.ones(9))


def test_infinities_do_not_cancel_in_a_list_of_tensors(device: Device) -> None:
    tensors = [polyhal.full((n,), np.inf, device=device) for n in range(1, 7)]
    step = polyhal.jit(lambda: [polyhal.square(t - t) for t in tensors])
    for _ in range(2):
        results = step()
    assert np.isnan(np.concatenate([t.numpy() for t in results])).all()
