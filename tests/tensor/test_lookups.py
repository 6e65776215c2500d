"""Elements by index along an axis: equal results to NumPy's and PyTorch's functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import polyhal
from polyhal import Device, Tensor


@pytest.mark.parametrize(
    ("shape", "index_shape", "axis"), [((3, 2), (1, 1), 1), ((1, 4), (3, 2), 1), ((2, 1, 3), (1, 4, 3), 2)]
)
def test_take_along_axis_broadcasts(
    shape: tuple[int, ...], index_shape: tuple[int, ...], axis: int, device: Device
) -> None:
    rng = np.random.default_rng(0)
    x, index = rng.uniform(size=shape).astype(np.float32), rng.integers(-shape[axis], shape[axis], index_shape)
    mine = polyhal.take_along_axis(Tensor(x, device=device), Tensor(index, device=device), axis)
    np.testing.assert_array_equal(mine.numpy(), np.take_along_axis(x, index, axis))


def test_take_along_axis_takes_along_the_last_axis(numpy_device: Device) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], device=numpy_device)
    assert polyhal.take_along_axis(x, Tensor([[1], [0]], device=numpy_device)).tolist() == [[2.0], [3.0]]


def test_lookups_of_pytorch_learn_as_there(device: Device) -> None:
    values = np.random.default_rng(1).uniform(size=(3, 4)).astype(np.float32)
    x, theirs = Tensor(values, device=device, requires_grad=True), torch.tensor(values, requires_grad=True)
    index = np.array([[2, 0], [1, 1]])
    mask = values > 0.5

    def total(x, gather, as_index):  # type: ignore[no-untyped-def]
        return (
            (gather(x, 0, as_index(index)) ** 2).sum()
            + (x.index_select(1, as_index(index[0])) ** 2).sum()
            + (x.masked_fill(as_index(mask), 2.0) ** 3).sum()
            + (x.narrow(1, 1, 2) * x.select(0, -1)[:2]).sum()
        )

    total(x, polyhal.gather, lambda i: Tensor(i, device=device)).backward()
    total(theirs, torch.gather, torch.tensor).backward()
    np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-5)
