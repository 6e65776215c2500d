"""Brackets against NumPy: views, index tensors, masks, and assignment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_basic_indices(data: Any) -> None:
    a = np.arange(np.prod(shape := data.draw(SHAPES)), dtype=np.float32).reshape(shape)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, max_dims=6))
    x = Tensor(a, device=Device("numpy"))
    out = x[index]
    np.testing.assert_array_equal(out.numpy(), a[index])
    assert out.buffer is x.buffer or not out.size or not out.ndim


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_integer_array_indices(data: Any) -> None:
    a = np.arange(np.prod(shape := data.draw(SHAPES)), dtype=np.float32).reshape(shape)
    index = data.draw(
        hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(min_dims=0, max_dims=3, max_side=4))
    )
    x = Tensor(a, device=Device("numpy"))
    np.testing.assert_array_equal(x[index].numpy(), a[index])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data())
def test_basic_assignment(data: Any) -> None:
    a = np.arange(np.prod(shape := data.draw(SHAPES)), dtype=np.float32).reshape(shape)
    index = data.draw(hnp.basic_indices(shape))
    x = Tensor(a, device=Device("numpy"))
    if data.draw(st.booleans()):
        x[index] = -1.0
        a[index] = -1.0
    else:
        value = -np.arange(np.size(a[index]), dtype=np.float32).reshape(np.shape(a[index]))
        x[index] = value
        a[index] = value
    np.testing.assert_array_equal(x.numpy(), a)


CASES: list[tuple[str, Any]] = [
    ("mask", lambda a: a > 5),
    ("mask of rows", lambda a: np.array([True, False, True])),
    ("rows", lambda a: np.array([2, 0, 2])),
    ("negative rows", lambda a: np.array([-1, -3])),
    ("table of rows", lambda a: np.array([[0, 1], [2, 2]])),
    ("rows and columns", lambda a: (np.array([0, 2]), np.array([3, 1]))),
    ("grid", lambda a: (np.array([[0], [2]]), np.array([3, 1]))),
    ("column after a slice", lambda a: (slice(None), np.array([3, 3, 0]))),
    ("after an ellipsis", lambda a: (..., np.array([1, 2]))),
    ("with a new axis", lambda a: (np.array([1, 0]), None)),
    ("with a step", lambda a: (np.array([1, 0]), slice(None, None, 2))),
    ("with a number", lambda a: (0, np.array([1, 3]))),
    ("number, slice, rows", lambda a: (0, None, np.array([1, 3]))),
    ("slice, number, rows of a cube", lambda a: (None, 1, np.array([1, 3]))),
    ("no rows", lambda a: np.array([], np.int64)),
    ("list", lambda a: [0, 2]),
    ("empty mask", lambda a: np.zeros(3, bool)),
    ("true", lambda a: True),
    ("false", lambda a: (None, False, 1)),
    ("number and true", lambda a: (1, np.array(True))),
    ("true and columns", lambda a: (slice(None), True, np.array([1, 3]))),
    ("columns and true", lambda a: (..., np.array([1, 3]), None, np.array(True))),
]


@pytest.mark.parametrize(("index"), [c[1] for c in CASES], ids=[c[0] for c in CASES])
def test_advanced_indices(index: Any, device: Device) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x, chosen = Tensor(a, device=device), index(a)
    np.testing.assert_array_equal(x[chosen].numpy(), a[chosen])
    on_device = (
        tuple(Tensor(i, device=device) if isinstance(i, np.ndarray) else i for i in chosen)
        if isinstance(chosen, tuple)
        else chosen
    )
    np.testing.assert_array_equal(x[on_device].numpy(), a[chosen])
    value = np.float32(-1)
    x[chosen], a[chosen] = value, value
    np.testing.assert_array_equal(x.numpy(), a)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (3, "index 3 is out of range for axis 0 of length 3"),
        (-4, "index -4 is out of range"),
        ((0, 0, 0), "3 indices for a tensor of 2 axes"),
        ((..., ...), "more than one ellipsis"),
        (np.array([0.5]), "an index tensor is float64; expected integers or bool"),
        (np.array([0, 3]), "an index has numbers from 0 to 3; the axis it indexes has length 3"),
        (np.array([True, False]), r"a mask of shape \(2,\) does not fit axes \(3,\)"),
        (np.zeros((3, 3), bool), "does not fit"),
        ((0, np.array([-5])), "the axis it indexes has length 4"),
    ],
)
def test_bad_indices(index: Any, message: str, device: Device) -> None:
    with pytest.raises(IndexError, match=message):
        polyhal.zeros((3, 4), device=device)[index]


def test_gradients_of_indices(device: Device) -> None:
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4), device=device, requires_grad=True)
    (x[1:, ::2].sum() + x[np.array([2, 2, 0])].sum() * 10 + x[0, 3] * 100).backward()
    expected = np.zeros((3, 4))
    expected[1:, ::2] += 1
    np.add.at(expected, [2, 2, 0], 10)
    expected[0, 3] += 100
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_values_assigned_by_index_tensors_receive_gradients(device: Device) -> None:
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=device, requires_grad=True)
    value = Tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    h = x * 1
    # The last of two values for one element counts, as in NumPy.
    h[Tensor([0, 1, 0], device=device), Tensor([1, 2, 1], device=device)] = value
    h[Tensor([[True, False, False], [False, False, False]], device=device)] = 7.0
    (h * h).sum().backward()
    assert h.tolist() == [[7.0, 3.0, 2.0], [3.0, 4.0, 2.0]]
    assert x.grad.tolist() == [[0.0, 0.0, 4.0], [6.0, 8.0, 0.0]]
    assert value.grad.tolist() == [0.0, 4.0, 6.0]
