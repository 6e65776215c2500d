"""Elementwise ops where no derivative exists, where integers overflow, and on bool; expected values are PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device


def leaf(values: object, device: Device) -> Tensor:
    return Tensor(values, dtype="float32", device=device, requires_grad=True)


def gradients(y: Tensor, *leaves: Tensor) -> list[list[float]]:
    return [g.tolist() for g in polyhal.grad(y.sum(), list(leaves))]


@pytest.mark.parametrize("exponent", [0, 0.0])
def test_the_gradient_of_a_power_of_zero_is_zero_for_a_number(device: Device, exponent: float) -> None:
    x = leaf([0.0, 2.0], device)
    assert gradients(x**exponent, x) == [[0.0, 0.0]]


def test_the_gradient_of_a_power_of_zero_is_zero_for_a_tensor(device: Device) -> None:
    x, y = leaf([0.0, 2.0], device), leaf([0.0, 0.0], device)
    dx, dy = gradients(x**y, x, y)
    assert dx == [0.0, 0.0]
    assert dy == pytest.approx([0.0, np.log(2.0)])


def test_a_bound_above_the_other_gives_its_gradient_to_the_maximum(device: Device) -> None:
    x, low, high = (leaf([v], device) for v in (-5.0, 1.0, -1.0))
    y = polyhal.clip(x, low, high)
    assert y.tolist() == [-1.0]
    assert gradients(y, x, low, high) == [[0.0], [0.0], [1.0]]


def test_the_angle_of_the_origin_has_no_gradient(device: Device) -> None:
    y, x = leaf([0.0], device), leaf([0.0], device)
    assert gradients(polyhal.atan2(y, x), y, x) == [[0.0], [0.0]]


def test_integers_to_negative_powers_are_truncated_reciprocals(device: Device) -> None:
    x = polyhal.tensor([2, 1, -1, -1, 0, 3], device=device)
    y = polyhal.tensor([-1, -1, -1, -2, -1, 2], device=device)
    assert (x**y).tolist() == [0, 1, -1, 1, 0, 9]
    assert (x**-1).tolist() == [0, 1, -1, -1, 0, 0]


@pytest.mark.parametrize("name", ["erf", "sigmoid", "silu", "softplus"])
def test_activations_take_bool_and_unsigned_integers(device: Device, name: str) -> None:
    function = getattr(polyhal, name)
    for values in (np.array([True, False]), np.array([3, 0], np.uint8)):
        expected = function(polyhal.tensor(values.astype(np.float32), device=device))
        assert function(polyhal.tensor(values, device=device)).tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_a_number_outside_the_range_of_integers_wraps_in_arithmetic(device: Device) -> None:
    x = polyhal.tensor(np.array([2], np.uint8), device=device)
    assert (x * 300).tolist() == [88]
    assert (x + -1).tolist() == [1]
    assert (300 - x).tolist() == [42]
    assert (polyhal.tensor(np.array([2], np.int8), device=device) + 200).tolist() == [-54]


def test_integer_division_has_no_gradient(device: Device) -> None:
    x, y = leaf([-5.0, 1.0], device), leaf([np.inf, 0.0], device)
    assert gradients(x // y, x, y) == [[0.0, 0.0], [0.0, 0.0]]


def test_the_remainder_by_infinity_of_the_other_sign_subtracts_it_once(device: Device) -> None:
    y = leaf([np.inf, -np.inf], device)
    x = polyhal.tensor([-5.0, -5.0], device=device)
    assert gradients(x % y, y) == [[1.0, 0.0]]


@pytest.mark.parametrize("narrow", ["int8", "int16", "int32"])
def test_a_narrow_operand_of_a_wide_integer_op_keeps_its_sign(device: Device, narrow: str) -> None:
    wide, small = np.array([-7, -1, 2, 7, 9]), np.array([-2, -3, -1, 2, 3], narrow)
    x, y = polyhal.tensor(wide, device=device), polyhal.tensor(small, device=device)
    assert (x**y).tolist() == [0, -1, 0, 49, 729]
    for function in (np.floor_divide, np.remainder, np.less, np.maximum):
        op = getattr(polyhal, function.__name__)
        assert op(x, y).tolist() == function(wide, small).tolist()
        assert op(y, x).tolist() == function(small, wide).tolist()


def test_the_sign_of_a_zero_is_a_positive_zero(device: Device) -> None:
    signs = polyhal.sign(leaf([0.0, -0.0, -np.inf, 1e-30], device)).numpy()
    np.testing.assert_array_equal(signs, [0.0, 0.0, -1.0, 1.0])
    assert not np.signbit(signs[:2]).any()


def test_none_is_no_operand_eagerly_and_in_captured_steps(device: Device) -> None:
    """A fused kernel would read memory that nobody gave it."""
    x = polyhal.ones((4,), device=device)
    step = polyhal.jit(lambda a, b: a * 2 + b)
    for _ in range(2):
        step(x, x)
    for call in (lambda: step(x, None), lambda: x + None, lambda: polyhal.maximum(x, None)):
        with pytest.raises(TypeError, match=r"\[(add|maximum)\] y is None; expected a tensor or a number"):
            call()
