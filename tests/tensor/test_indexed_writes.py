"""Indexed writes have PyTorch's elements and gradients, write in place, and write nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal.core import dispatch

Write = Callable[[Any, Callable[[Any], Any]], Any]
"""Writes to a tensor (4, 5, 6); the second argument makes tensors of arrays and lists."""


def _values(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype(np.float32)


MASK = np.random.default_rng(3).uniform(size=(4, 5, 6)) > 0.7

WRITES: dict[str, Write] = {
    "a row": lambda x, t: x.__setitem__(1, t(_values(5, 6))),
    "rows": lambda x, t: x.__setitem__(t([2, -1]), t(_values(2, 5, 6))),
    "rows to a number": lambda x, t: x.__setitem__(t([2, 0]), 7.0),
    "rows to one row": lambda x, t: x.__setitem__(t([2, 0, 3]), t(_values(6))),
    "rows by a list": lambda x, t: x.__setitem__([0, -2], t(_values(2, 5, 6))),
    "a table of rows": lambda x, t: x.__setitem__(t([[2, 0], [1, 3]]), t(_values(2, 2, 5, 6))),
    "no row": lambda x, t: x.__setitem__(t(np.zeros(0, np.int64)), 1.0),
    "columns": lambda x, t: x.__setitem__((slice(None), t([4, 1])), t(_values(4, 2, 6))),
    "the last axis": lambda x, t: x.__setitem__((..., t([4, 1])), t(_values(4, 5, 2))),
    "reversed rows and columns": lambda x, t: x.__setitem__((slice(None, 2), t([3, 0])), 2.0),
    "elements": lambda x, t: x.__setitem__((t([0, 3]), t([-1, 0]), t([5, 2])), t(_values(2))),
    "a grid": lambda x, t: x.__setitem__((t([[0], [2]]), t([1, 3, 4])), t(_values(2, 3, 6))),
    "indices apart": lambda x, t: x.__setitem__((t([0, 1]), slice(None), t([5, 2])), t(_values(2, 5))),
    "an index in a row": lambda x, t: x.__setitem__((2, t([1, 0])), t(_values(2, 6))),
    "a mask": lambda x, t: x.__setitem__(t(MASK), t(_values(int(MASK.sum())))),
    "a mask to a number": lambda x, t: x.__setitem__(t(MASK), -1.0),
    "a mask to one element": lambda x, t: x.__setitem__(t(MASK), t(_values(1))),
    "a mask of rows to one row": lambda x, t: x.__setitem__(t(MASK[:, 0, 0]), t(_values(1, 5, 6))),
    "a mask of rows, in part": lambda x, t: x.__setitem__((t(MASK[:, 0, 0]), slice(None)), t(_values(6))),
    "index_put_ of a mask to a number": lambda x, t: x.index_put_((t(MASK),), t(_values(1).reshape(()))),
    "index_put_ of a mask, added": lambda x, t: x.index_put_((t(MASK[:, :, 0]),), t(_values(6)), accumulate=True),
    "a mask of rows": lambda x, t: x.__setitem__(t(MASK[:, 0, 0]), t(_values(5, 6))),
    "a mask of columns": lambda x, t: x.__setitem__((slice(None), t(MASK[0, :, 0])), 3.0),
    "index_copy_": lambda x, t: x.index_copy_(0, t([3, 1]), t(_values(2, 5, 6))),
    "index_copy_ of columns": lambda x, t: x.index_copy_(1, t([3, 1]), t(_values(4, 2, 6))),
    "index_add_": lambda x, t: x.index_add_(0, t([3, 1, 3]), t(_values(3, 5, 6))),
    "index_add_ of columns": lambda x, t: x.index_add_(2, t([3, 1, 3]), t(_values(4, 5, 3)), alpha=2),
    "index_fill_": lambda x, t: x.index_fill_(1, t([0, 4]), 9.0),
    "index_put_": lambda x, t: x.index_put_((t([0, 3]), t([1, 2])), t(_values(2, 6))),
    "index_put_, added": lambda x, t: x.index_put_((t([0, 0]),), t(_values(2, 5, 6)), accumulate=True),
    "index_put_ of a mask": lambda x, t: x.index_put_((t(MASK),), t(_values(int(MASK.sum())))),
    "put_": lambda x, t: x.put_(t([0, -1, 50]), t(_values(3))),
    "put_, added": lambda x, t: x.put_(t([0, -1, 0]), t(_values(3)), accumulate=True),
    "scatter_": lambda x, t: x.scatter_(1, t(np.array([[[1, 0]], [[4, 2]]])), t(_values(2, 1, 2))),
    "scatter_ of a number": lambda x, t: x.scatter_(0, t(np.array([[[1, 0]], [[3, 2]]])), 5.0),
    "scatter_add_": lambda x, t: x.scatter_add_(0, t(np.zeros((2, 5, 6), np.int64)), t(_values(2, 5, 6))),
    "masked_fill_": lambda x, t: x.masked_fill_(t(MASK), 0.5),
    "masked_fill_ of columns": lambda x, t: x.masked_fill_(t(MASK[0, 0]), 0.5),
    "masked_scatter_": lambda x, t: x.masked_scatter_(t(MASK), t(_values(4, 5, 6))),
}
"""None of them names an element twice, unless it adds."""
COUNTED = ("a mask", "index_put_ of a mask")
"""Writes of a value for each hit, whose number is read from the device."""
READ_ON_HOST = {"a mask", "a mask of columns", "index_put_ of a mask", "rows by a list"}
"""Their hits are counted on the host, or they read the host's memory, which a captured step refuses or freezes."""


def ours(device: ph.Device) -> Callable[[Any], ph.Tensor]:
    return lambda data: ph.tensor(np.asarray(data), device=device)


def theirs(data: Any) -> torch.Tensor:
    return torch.tensor(np.asarray(data))


@pytest.mark.parametrize("name", WRITES)
def test_elements_equal_pytorchs_in_the_same_memory(device: ph.Device, name: str) -> None:
    x, t = ours(device)(_values(4, 5, 6)), theirs(_values(4, 5, 6))
    view, buffer = x[1:], x.buffer
    WRITES[name](x, ours(device))
    WRITES[name](t, theirs)
    np.testing.assert_allclose(x.numpy(), t.numpy(), rtol=1e-6, atol=1e-6)
    assert x.buffer is buffer
    np.testing.assert_array_equal(view.numpy(), x.numpy()[1:])


@pytest.mark.parametrize("name", WRITES)
def test_views_of_any_layout_are_written(device: ph.Device, name: str) -> None:
    base, other = ours(device)(_values(6, 5, 4)), theirs(_values(6, 5, 4))
    x, t = base.permute(2, 1, 0), other.permute(2, 1, 0)
    WRITES[name](x, ours(device))
    WRITES[name](t, theirs)
    np.testing.assert_allclose(base.numpy(), other.numpy(), rtol=1e-6, atol=1e-6)


def _gradients(start: Any, values: Any, make: Callable[[Any], Any], write: Write) -> list[np.ndarray]:
    """Return the gradients of a write to a non-leaf tensor and of later ops."""
    given: list[Any] = []

    def leaf(data: Any) -> Any:
        made = make(data)
        if made.dtype in (ph.float32, torch.float32):
            given.append(made.requires_grad_())
            return made * 1
        return made

    x = start * 2
    write(x, leaf)
    (x * x * values).sum().backward()
    return [g.grad.numpy() for g in (start, *given)]


@pytest.mark.parametrize("name", WRITES)
def test_gradients_agree_with_pytorch(device: ph.Device, name: str) -> None:
    make = ours(device)
    found = _gradients(make(_values(4, 5, 6)).requires_grad_(), make(_values(4, 5, 6) + 2), make, WRITES[name])
    expected = _gradients(theirs(_values(4, 5, 6)).requires_grad_(), theirs(_values(4, 5, 6) + 2), theirs, WRITES[name])
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in WRITES if n not in READ_ON_HOST])
def test_each_call_of_a_captured_write_writes(device: ph.Device, name: str) -> None:
    x, t = ours(device)(_values(4, 5, 6)), theirs(_values(4, 5, 6))
    step = ph.jit(lambda: (x.mul_(2.0), WRITES[name](x, ours(device)), None)[2])
    for _ in range(4):
        step()
        t.mul_(2.0)
        WRITES[name](t, theirs)
        np.testing.assert_allclose(x.numpy(), t.numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [3, 100, 1000])
def test_the_last_of_several_writers_wins(device: ph.Device, count: int) -> None:
    rng = np.random.default_rng(count)
    index, rows = rng.integers(-50, 50, count), rng.uniform(size=(count, 3)).astype(np.float32)
    expected = np.zeros((50, 3), np.float32)
    for i, row in zip(index, rows, strict=True):
        expected[i] = row
    x = ph.zeros((50, 3), device=device)
    x[ph.tensor(index, device=device)] = ph.tensor(rows, device=device)
    np.testing.assert_array_equal(x.numpy(), expected)


@settings(max_examples=60)
@given(st.data())
def test_any_brackets_assign_as_in_numpy(data: st.DataObject) -> None:
    shape = (3, 4, 2)
    count = data.draw(st.integers(1, 3))
    items: list[Any] = []
    for n in shape[:count]:
        kind = data.draw(st.sampled_from(["index", "slice", "number"]))
        if kind == "index":
            items.append(np.array(data.draw(st.permutations(range(-n, 0)))[:2]))
        elif kind == "slice":
            items.append(slice(data.draw(st.integers(0, n)), None, data.draw(st.sampled_from([1, -1, 2]))))
        else:
            items.append(data.draw(st.integers(-n, n - 1)))
    a = np.zeros(shape, np.float32)
    values = np.arange(1, 1 + a[tuple(items)].size, dtype=np.float32).reshape(a[tuple(items)].shape)
    x = ph.zeros(shape, device="numpy")
    x[tuple(ph.tensor(i, device="numpy") if isinstance(i, np.ndarray) else i for i in items)] = ph.tensor(
        values, device="numpy"
    )
    a[tuple(items)] = values
    np.testing.assert_array_equal(x.numpy(), a)


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("name", ["rows", "elements", "index_copy_", "index_add_", "index_put_", "put_"])
def test_memory_is_proportional_to_the_written_elements(device: ph.Device, name: str, captured: bool) -> None:
    if device.name == "numpy:contiguous_only":
        pytest.skip("a device with the required members alone composes these ops of ones that take a tensor's size")
    x = ph.zeros((200_000, 5, 6), device=device)  # 24 MB
    make = ours(device)

    def write() -> None:
        WRITES[name](x, make)

    step = ph.jit(write) if captured else write
    used = device.pool.used
    device.pool.reset_peak()
    for _ in range(4 if captured else 1):
        step()
    assert device.pool.peak - used < x.nbytes // 20


@pytest.mark.parametrize("name", ["rows", "elements", "index_copy_", "index_add_", "index_put_", "scatter_"])
def test_views_with_other_orders_of_axes_take_no_more_memory(device: ph.Device, name: str) -> None:
    if device.name == "numpy:contiguous_only":
        pytest.skip("a device with the required members alone composes these ops of ones that take a tensor's size")
    x = ph.zeros((6, 5, 200_000), device=device).permute(2, 1, 0)  # 24 MB
    used = device.pool.used
    device.pool.reset_peak()
    WRITES[name](x, ours(device))
    assert device.pool.peak - used < x.nbytes // 20


def test_an_index_out_of_range_is_refused_and_changes_nothing() -> None:
    x = ph.zeros((4, 3), device="numpy")
    index = ph.tensor([1, 4], device="numpy")
    for write in (
        lambda: x.__setitem__(index, 1.0),
        lambda: x.__setitem__([1, 4], 1.0),
        lambda: x.__setitem__((index, index), 1.0),
        lambda: x.index_copy_(0, index, ph.ones((2, 3), device="numpy")),
        lambda: x.index_add_(0, index, ph.ones((2, 3), device="numpy")),
        lambda: x.put_(ph.tensor([12], device="numpy"), ph.ones(1, device="numpy")),
    ):
        with pytest.raises(IndexError):
            write()
    assert not x.numpy().any()


def test_a_leaf_that_requires_gradients_is_not_written() -> None:
    x = ph.zeros((4, 3), device="numpy", requires_grad=True)
    index = ph.tensor([1], device="numpy")
    for write in (
        lambda: x.__setitem__(index, 1.0),
        lambda: x.__setitem__(index[:0], 1.0),
        lambda: x.index_fill_(0, index, 1.0),
        lambda: x.masked_fill_(x > 0, 1.0),
    ):
        with pytest.raises(ph.hal.errors.AutogradError, match="leaf that requires gradients"):
            write()
    assert dispatch.thread.grad_enabled
    assert not x.numpy().any()


@pytest.mark.parametrize("name", [n for n in WRITES if "mask" in n and "of columns" not in n and n not in COUNTED])
def test_only_a_mask_with_a_value_for_each_hit_is_counted(device: ph.Device, name: str) -> None:
    def t(values: Any) -> ph.Tensor:
        return ph.tensor(values, device=device)

    x = t(_values(4, 5, 6))
    expected = x.clone()
    WRITES[name](expected, t)
    step = ph.jit(lambda x: WRITES[name](x, t), warm_up=False)
    step(x)
    np.testing.assert_array_equal(x.numpy(), expected.numpy())
