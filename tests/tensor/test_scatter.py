"""Writing by index and choosing by masks: cases that PyTorch's samples leave out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal.hal.errors import CaptureError, ShapeError


def _tensors(device: ph.Device, *arrays: object, requires_grad: bool = False) -> list[ph.Tensor]:
    return [
        ph.tensor(a, device=device, requires_grad=requires_grad and np.asarray(a).dtype.kind == "f") for a in arrays
    ]


def test_the_last_of_several_writers_wins_and_gets_the_gradient(device: ph.Device) -> None:
    x, src = _tensors(device, np.zeros(4, np.float32), np.arange(1, 6, dtype=np.float32), requires_grad=True)
    index = ph.tensor([2, 0, 2, 2, 0], device=device)
    out = x.scatter(0, index, src)
    assert out.tolist() == [5, 0, 4, 0]
    (out * ph.tensor([1.0, 2.0, 3.0, 4.0], device=device)).sum().backward()
    assert x.grad is not None
    assert src.grad is not None
    assert x.grad.tolist() == [0, 2, 0, 4]
    assert src.grad.tolist() == [0, 0, 0, 3, 1]


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_ties_for_an_extreme_share_its_gradient_evenly(device: ph.Device, reduce: str) -> None:
    values = np.array([1, 1, 2, 1], np.float32), np.array([1, 1, 2, 2, 0], np.float32)
    x, src = _tensors(device, *values, requires_grad=True)
    index = np.array([0, 0, 1, 1, 2])
    x.scatter_reduce(0, ph.tensor(index, device=device), src, reduce).sum().backward()
    their_x, their_src = (torch.tensor(v, requires_grad=True) for v in values)
    their_x.scatter_reduce(0, torch.tensor(index), their_src, reduce).sum().backward()  # type: ignore[no-untyped-call]
    assert their_x.grad is not None
    assert their_src.grad is not None
    assert x.grad is not None
    assert src.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), their_x.grad.numpy(), rtol=1e-6)
    np.testing.assert_allclose(src.grad.numpy(), their_src.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize(("shape", "count"), [((0,), 0), ((3,), 0), ((0,), 2)])
def test_a_source_without_a_hit_has_a_gradient_of_zeros(device: ph.Device, shape: tuple[int, ...], count: int) -> None:
    source = ph.ones((count,), device=device).requires_grad_()
    x = ph.ones(shape, device=device)
    result = ph.masked_scatter(x, x > 1, source)
    assert result.requires_grad
    assert result.tolist() == x.tolist()
    result.sum().backward()
    assert source.grad is not None
    assert source.grad.tolist() == [0.0] * count


def test_a_product_with_zeros_has_finite_gradients(device: ph.Device) -> None:
    x, src = _tensors(device, np.array([2.0], np.float32), np.array([0.0, 3.0, 5.0], np.float32), requires_grad=True)
    x.index_reduce(0, ph.tensor([0, 0, 0], device=device), src, "prod").sum().backward()
    assert x.grad is not None
    assert src.grad is not None
    assert (x.grad.tolist(), src.grad.tolist()) == ([0], [30, 0, 0])


@pytest.mark.parametrize("function", ["scatter_add", "index_add", "index_copy"])
def test_numbers_out_of_range_are_refused_on_cpus(function: str) -> None:
    x = ph.zeros((3,), device="numpy")
    with pytest.raises(IndexError, match="index 3 at"):
        getattr(x, function)(0, ph.tensor([0, 3], device="numpy"), ph.ones((2,), device="numpy"))


def test_a_source_that_does_not_fit_is_refused() -> None:
    x, index = ph.zeros((3, 2), device="numpy"), ph.tensor([0, 1], device="numpy")
    with pytest.raises(ShapeError, match="the source has shape"):
        x.index_add(0, index, ph.ones((3, 2), device="numpy"))
    with pytest.raises(ShapeError, match="does not fit"):
        x.scatter_add(0, index, ph.ones((2,), device="numpy"))
    with pytest.raises(ValueError, match="reduce is 'median'"):
        x.index_reduce(0, index, ph.ones((2, 2), device="numpy"), "median")


def test_writes_by_index_replay_in_a_captured_step(device: ph.Device) -> None:
    def step(x: ph.Tensor, index: ph.Tensor, src: ph.Tensor) -> ph.Tensor:
        return x.index_add(0, index, src).scatter_reduce(0, index, src, "amax").index_copy(0, index[:1], src[:1])

    captured = ph.jit(step)
    rng = np.random.default_rng(0)
    for _ in range(3):
        x, index, src = _tensors(
            device, rng.normal(size=5).astype(np.float32), rng.integers(0, 5, 7), rng.normal(size=7).astype(np.float32)
        )
        np.testing.assert_array_equal(captured(x, index, src).numpy(), step(x, index, src).numpy())


ADDED: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "index_add": lambda f, x, i, s: f.index_add(x, 0, i, s),
    "index_add of columns": lambda f, x, i, s: f.index_add(x.T, 1, i, s.T),
    "scatter_add": lambda f, x, i, s: f.scatter_add(x, 0, i[:, None].expand(3, 2), s),
    "scatter_add of one column": lambda f, x, i, s: f.scatter_add(x, 0, i[:, None], s),
    "scatter_add of a vector": lambda f, x, i, s: f.scatter_add(x[:, 0], 0, i, s[:, 0]),
    "scatter_reduce": lambda f, x, i, s: f.scatter_reduce(x, 0, i[:, None].expand(3, 2), s, "mean"),
    "scatter_reduce without self": lambda f, x, i, s: f.scatter_reduce(
        x, 0, i[:, None].expand(3, 2), s, "sum", include_self=False
    ),
    "index_reduce": lambda f, x, i, s: f.index_reduce(x, 0, i, s, "mean", include_self=False),
    "index_put": lambda f, x, i, s: f.index_put(x, (i,), s, accumulate=True),
    "put": lambda f, x, i, s: (x * 1).put_(i, s[:, 0], accumulate=True),
}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.filterwarnings("ignore:index_reduce\\(\\) is in beta")
@pytest.mark.parametrize("name", ADDED)
def test_elements_that_no_index_names_keep_the_sign_of_their_zeros(device: ph.Device, name: str, dtype: str) -> None:
    x, index, src = np.full((5, 2), -0.0, dtype), np.array([1, 3, 1]), np.ones((3, 2), dtype)
    theirs = ADDED[name](torch, *map(torch.tensor, (x, index, src))).numpy()

    def step(*operands: ph.Tensor) -> Any:
        return ADDED[name](ph, *operands)

    for run in (step, ph.jit(step)):
        ours = run(*_tensors(device, x, index, src)).numpy()
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)


@pytest.mark.parametrize("choose", [ph.argwhere, ph.nonzero, lambda x: x.masked_select(x > 0), lambda x: x[x > 0]])
def test_a_result_as_long_as_its_hits_cannot_be_captured(choose: Callable[[ph.Tensor], object]) -> None:
    x = ph.ones((4,), device="numpy")
    with pytest.raises(CaptureError, match="number of hits"), ph.capture():
        choose(x)


def test_a_mask_on_the_device_chooses_what_one_on_the_host_does(device: ph.Device) -> None:
    x = np.random.default_rng(0).normal(size=(4, 5, 3)).astype(np.float32)
    ours = ph.tensor(x, device=device)
    for mask in (x > 0.3, x[:, :, 0] > 0, x[:, 0, 0] > 9):
        np.testing.assert_array_equal(ours[ph.tensor(mask, device=device)].numpy(), x[mask])
        np.testing.assert_array_equal(ours[mask].numpy(), x[mask])


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("initial", [None, 1.5])
def test_segments_reduce_as_in_pytorch(device: ph.Device, reduce: str, initial: float | None) -> None:
    data = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    lengths = np.array([[2, 0, 4], [1, 5, 0]])
    offsets = np.concatenate([np.zeros((2, 1), int), np.cumsum(lengths, 1)], 1)
    theirs = torch.segment_reduce(
        torch.tensor(data), reduce, lengths=torch.tensor(lengths), axis=1, unsafe=True, initial=initial
    )
    x, counts, bounds = _tensors(device, data, lengths, offsets)
    for keywords in ({"lengths": counts}, {"offsets": bounds}):
        ours = ph.segment_reduce(x, reduce, axis=1, initial=initial, **keywords)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)


def test_positions_of_a_narrow_dtype_are_unraveled_in_64_bits() -> None:
    rows, columns = ph.unravel_index(ph.tensor(np.array([7, 255], np.uint8), device="numpy"), (2, 300))
    assert (rows.tolist(), columns.tolist()) == ([0, 0], [7, 255])
    assert rows.dtype is ph.int64
