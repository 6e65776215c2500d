"""PyTorch's arithmetic with extra arguments; the expected values are PyTorch's."""

from __future__ import annotations

import math

import numpy as np
import pytest

import polyhal
from polyhal.hal.device import Device


def test_quotients_are_rounded_as_asked(device: Device) -> None:
    x, y = polyhal.tensor([-7.0, 7.0], device=device), polyhal.tensor([2.0, 2.0], device=device)
    assert polyhal.div(x, y).tolist() == [-3.5, 3.5]
    assert polyhal.div(x, y, rounding_mode="floor").tolist() == [-4.0, 3.0]
    assert polyhal.div(x, y, rounding_mode="trunc").tolist() == [-3.0, 3.0]
    whole = polyhal.div(polyhal.tensor([-7, 7], device=device), 2, rounding_mode="trunc")
    assert (whole.dtype, whole.tolist()) == (polyhal.int64, [-3, 3])
    with pytest.raises(ValueError, match="rounding_mode is 'up'"):
        polyhal.div(x, y, rounding_mode="up")


def test_scaled_differences(device: Device) -> None:
    x, y = polyhal.tensor([1, 2], device=device), polyhal.tensor([3, 5], device=device)
    assert polyhal.sub(x, y, alpha=2).tolist() == [-5, -8]
    assert polyhal.rsub(x, y, alpha=2).tolist() == [1, 1]


def test_rounding_to_decimals_and_tens(device: Device) -> None:
    x = polyhal.tensor([12.345, -67.891], device=device)
    assert polyhal.round(x, decimals=1).tolist() == pytest.approx([12.3, -67.9], rel=1e-6)
    assert polyhal.round(x, decimals=-1).tolist() == [10.0, -70.0]
    assert x.round().tolist() == [12.0, -68.0]


def test_closeness_of_infinities_and_nan(device: Device) -> None:
    x = polyhal.tensor([1.0, math.inf, math.inf, math.nan], device=device)
    y = polyhal.tensor([1.000001, math.inf, -math.inf, math.nan], device=device)
    assert polyhal.isclose(x, y).tolist() == [True, True, False, False]
    assert polyhal.isclose(x, y, equal_nan=True).tolist() == [True, True, False, True]
    assert polyhal.allclose(x[:2], y[:2]) is True
    assert polyhal.allclose(x, y) is False


def test_replaced_nan_and_infinities(device: Device) -> None:
    x = polyhal.tensor([math.nan, math.inf, -math.inf, 1.5], device=device)
    assert polyhal.nan_to_num(x, posinf=9.0).tolist() == [0.0, 9.0, float(np.finfo(np.float32).min), 1.5]


def test_bool_has_a_sign_of_its_own_and_integer_squares(device: Device) -> None:
    x = polyhal.tensor([True, False], device=device)
    assert (polyhal.sign(x).dtype, polyhal.sign(x).tolist()) == (polyhal.bool_, [True, False])
    assert (polyhal.square(x).dtype, polyhal.square(x).tolist()) == (polyhal.int64, [1, 0])


def test_gated_and_parametric_units(device: Device) -> None:
    x = polyhal.tensor([[1.0, -2.0, 0.0, 0.0]], device=device)
    assert polyhal.glu(x).tolist() == [[0.5, -1.0]]
    assert polyhal.prelu(x, polyhal.tensor([0.5], device=device)).tolist() == [[1.0, -1.0, 0.0, 0.0]]
    slopes = polyhal.tensor([0.1, 0.25, 1.0, 1.0], device=device)
    assert polyhal.prelu(x, slopes).tolist() == [[1.0, -0.5, 0.0, 0.0]]
    with pytest.raises(ValueError, match="expected an even one"):
        polyhal.glu(x[:, :3])
    with pytest.raises(ValueError, match="expected one or one per channel"):
        polyhal.prelu(x, slopes[:3])
