"""Python numbers out of a dtype's range: stores raise and arithmetic wraps, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device
from polyhal.hal.errors import NumberRangeError


@pytest.fixture
def device(parity_device: Device) -> Device:
    return parity_device


def _int8(device: Device) -> Tensor:
    return polyhal.tensor(np.int8([1, 2]), device=device)


def _set(x: Tensor, value: int) -> None:
    x[0] = value


def _set_at(x: Tensor, index: Any, value: int) -> None:
    x[index] = value


_REFUSED: dict[str, Callable[[Device], Any]] = {
    "full": lambda d: polyhal.full((1,), 300, dtype="uint8", device=d),
    "full int32": lambda d: polyhal.full((1,), 2**40, dtype="int32", device=d),
    "full nan": lambda d: polyhal.full((1,), float("nan"), dtype="int32", device=d),
    "full_like": lambda d: polyhal.full_like(_int8(d), 200),
    "tensor": lambda d: polyhal.tensor(300, dtype="uint8", device=d),
    "tensor list": lambda d: polyhal.tensor([1, 300], dtype="int8", device=d),
    "clip": lambda d: _int8(d).clip(None, 200),
    "where": lambda d: polyhal.where(_int8(d) > 1, 300, _int8(d)),
    "masked_fill": lambda d: _int8(d).masked_fill(_int8(d) > 1, 300),
    "fill_": lambda d: _int8(d).fill_(300),
    "setitem": lambda d: _set(_int8(d), 300),
    "masked_fill_": lambda d: _int8(d).masked_fill_(_int8(d) > 1, 300),
    "fill_diagonal_": lambda d: _int8(d)[None].fill_diagonal_(300),
    "setitem by index": lambda d: _set_at(_int8(d), [1], 300),
    "setitem by mask": lambda d: _set_at(_int8(d), _int8(d) > 1, 300),
    "pad": lambda d: polyhal.nn.functional.pad(_int8(d), (1, 1), value=300),
    "maximum": lambda d: polyhal.maximum(_int8(d), 300),
    "minimum": lambda d: polyhal.minimum(_int8(d), -300),
    "pow": lambda d: _int8(d) ** 300,
    "clip_": lambda d: _int8(d).clip_(None, 200),
    "pow_": lambda d: _int8(d).pow_(300),
    "gcd": lambda d: polyhal.gcd(_int8(d), 300),
    "linspace": lambda d: polyhal.linspace(0, 300, 3, dtype="uint8", device=d),
    "randint": lambda d: polyhal.randint(0, 300, (3,), dtype="uint8", device=d),
    "random_": lambda d: _int8(d).random_(0, 300),
    "huge": lambda d: polyhal.ones((1,), device=d) + 10**400,
    "huge integer": lambda d: polyhal.tensor([1], device=d) * 2**70,
}


@pytest.mark.parametrize("name", _REFUSED)
def test_numbers_that_do_not_fit_are_refused(device: Device, name: str) -> None:
    for _ in range(2):  # the second call reuses the plan
        with pytest.raises(NumberRangeError, match="expected"):
            _REFUSED[name](device)


@pytest.mark.parametrize("name", _REFUSED)
def test_numbers_that_do_not_fit_are_refused_in_captured_steps(device: Device, name: str) -> None:
    with pytest.raises(NumberRangeError, match="expected"):
        polyhal.jit(lambda: _REFUSED[name](device), warm_up=False)()


def test_negative_numbers_wrap_to_unsigned_ones(device: Device) -> None:
    assert polyhal.full((1,), -1, dtype="uint8", device=device).item() == 255
    assert polyhal.tensor([-1], dtype="uint8", device=device).item() == 255
    x = polyhal.zeros((3,), dtype="uint8", device=device)
    assert x.masked_fill_(x < 1, -1).tolist() == [255] * 3
    x[[1]] = -2
    assert x.tolist() == [255, 254, 255]


_LARGE: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "add": (lambda x: x + 2**63, 2**63 + 5),
    "where": (lambda x: polyhal.where(x > 1, 2**63 + 7, x), 2**63 + 7),
    "masked_fill": (lambda x: x.masked_fill(x > 1, 2**63 + 7), 2**63 + 7),
    "clip": (lambda x: x.clip(2**63 + 9), 2**63 + 9),
    "full_like": (lambda x: polyhal.full_like(x, 2**64 - 1), 2**64 - 1),
    "greater": (lambda x: (x + 2**63) > 2**63, 1),
    "subtract": (lambda x: x - 2**63, 2**63 + 5),
}


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", _LARGE)
def test_unsigned_integers_take_numbers_of_64_bits(device: Device, name: str, captured: bool) -> None:
    function, expected = _LARGE[name]
    step = polyhal.jit(function) if captured else function
    x = polyhal.tensor(np.uint64([5]), device=device)
    for _ in range(3 if captured else 1):
        got = step(x)
    assert int(got.numpy()[0]) == expected
    assert (polyhal.tensor([5], device=device) - 2**63).item() == 5 - 2**63
