"""Shapes and orders of elements under PyTorch's names: cases that the replay of PyTorch's samples does not cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph


def test_moveaxis_takes_several_axes(device: ph.Device) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    moved = ph.moveaxis(ph.tensor(x, device=device), (0, -1), (-1, 0))
    np.testing.assert_array_equal(moved.numpy(), np.moveaxis(x, (0, -1), (-1, 0)))
    with pytest.raises(ValueError, match="as many different axes"):
        ph.moveaxis(ph.tensor(x, device=device), (0, 1), (0,))


def test_vectors_without_elements_join_any_shape(device: ph.Device) -> None:
    nothing = ph.zeros(0, dtype=ph.float64 if device.name == "numpy" else ph.float32, device=device, requires_grad=True)
    x = ph.ones((2, 3), dtype=ph.float32, device=device, requires_grad=True)
    joined = ph.cat([nothing, x, nothing], dim=1)
    assert joined.shape == (2, 3)
    assert joined.dtype is nothing.dtype
    joined.sum().backward()
    assert nothing.grad is not None
    assert nothing.grad.shape == (0,)
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0] * 3] * 2
    assert ph.cat([nothing, nothing]).shape == (0,)


def test_concatenation_without_an_axis_joins_all_elements_in_a_row(device: ph.Device) -> None:
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3).T, np.float32(7), np.ones((0, 2), np.float32)]
    tensors = [ph.tensor(x, device=device, requires_grad=True) for x in arrays]
    for join in (ph.concat, ph.cat, ph.concatenate):
        joined = join([tensors[0].T.T, *tensors[1:]], axis=None)
        np.testing.assert_array_equal(joined.detach().numpy(), np.concatenate(arrays, axis=None))
    (joined * ph.arange(7, device=device)).sum().backward()
    for x, expected in zip(tensors, (np.arange(6.0).reshape(3, 2), 6.0, np.ones((0, 2))), strict=True):
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), expected)


@pytest.mark.parametrize("join", [ph.concat, ph.stack, lambda xs: ph.concat(xs, axis=None)])
def test_joining_no_tensors_is_an_error(join: Any) -> None:
    with pytest.raises(ph.errors.ShapeError, match="needs at least one tensor"):
        join([])


def test_sizes_of_split_by_keyword_and_as_a_tensor(device: ph.Device) -> None:
    x = ph.arange(6, device=device)
    assert [p.tolist() for p in x.split(split_size=4)] == [[0, 1, 2, 3], [4, 5]]
    assert [p.tolist() for p in ph.split(x, ph.tensor([1, 5], device=device))] == [[0], [1, 2, 3, 4, 5]]
    with pytest.raises(TypeError, match="nothing says where"):
        ph.split(x)


def test_flip_takes_axes_in_every_spelling(device: ph.Device) -> None:
    x = ph.arange(6, device=device).reshape(2, 3)
    for flipped in (x.flip(0, 1), x.flip((0, 1)), x.flip([0, 1]), x.flip(), x.flip(dims=(0, 1)), x.flip(axis=(0, 1))):
        assert flipped.tolist() == [[5, 4, 3], [2, 1, 0]]
    assert x.flip(()).tolist() == x.tolist()


def test_expand_and_repeat_take_separate_arguments(device: ph.Device) -> None:
    x = ph.tensor([[1.0], [2.0]], device=device, requires_grad=True)
    assert x.expand(-1, 3).tolist() == x.expand((2, 3)).tolist() == [[1.0] * 3, [2.0] * 3]
    repeated = x.repeat(2, 1, 2)
    assert repeated.shape == (2, 2, 2)
    repeated.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[4.0], [4.0]]
    with pytest.raises(ValueError, match=r"\[expand\]"):
        x.expand(3)
    with pytest.raises(ValueError, match=r"\[repeat\]"):
        x.repeat(3)


def test_grids_are_those_of_the_array_api(device: ph.Device) -> None:
    x, y = ph.arange(3, device=device), ph.arange(2, device=device)
    for indexing in ("xy", "ij"):
        ours = ph.meshgrid(x, y, indexing=indexing)
        theirs = np.meshgrid(x.numpy(), y.numpy(), indexing=indexing)
        assert [g.tolist() for g in ours] == [g.tolist() for g in theirs]
    assert ph.meshgrid(x, y)[0].shape == (2, 3)
    with pytest.raises(ValueError, match="indexing"):
        ph.meshgrid(x, y, indexing="yx")


def test_repeats_by_position_are_checked(device: ph.Device) -> None:
    x = ph.arange(3, device=device)
    assert x.repeat_interleave(ph.tensor([2, 0, 1], device=device)).tolist() == [0, 0, 2]
    assert ph.repeat_interleave(ph.tensor([2, 0, 1], device=device)).tolist() == [0, 0, 2]
    with pytest.raises(ValueError, match="each place"):
        x.repeat_interleave([1, 2])
    with pytest.raises(ValueError, match="0 or more"):
        x.repeat_interleave(-1)
