"""Writes that overlap their source behave as if the source were copied first, on all devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import polyhal as ph
from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import apply
from polyhal.hal.core.memory.overlap import share_elements
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops import OPS
from polyhal.hal.system.discovery.registry import registry

Write = Callable[[Any, Callable[[Any], Any]], Any]
"""Writes to the first argument, (40, 40), and passes its sources through the second."""


def _tensor_of(x: Any, values: range) -> Any:
    return ph.tensor([*values], device=x.device) if isinstance(x, ph.Tensor) else torch.tensor([*values])


def _indexed(x: Any, c: Callable[[Any], Any]) -> None:
    x.index_copy_(0, _tensor_of(x, range(1, 4)), c(x[:3]))


def _reversed_by_index(x: Any, c: Callable[[Any], Any]) -> None:
    x[_tensor_of(x, range(39, -1, -1))] = c(x)


def _added_in_reverse(x: Any, c: Callable[[Any], Any]) -> None:
    x.index_add_(0, _tensor_of(x, range(39, -1, -1)), c(x))


def _scattered_in_reverse(x: Any, c: Callable[[Any], Any]) -> None:
    x.scatter_add_(1, _tensor_of(x, range(39, -1, -1)).expand(40, 40), c(x))


WRITES: dict[str, Write] = {
    "rows down": lambda x, c: x.__setitem__(slice(1, None), c(x[:-1])),
    "rows up": lambda x, c: x.__setitem__(slice(None, -1), c(x[1:])),
    "columns": lambda x, c: x.__setitem__((slice(None), slice(1, None)), c(x[:, :-1])),
    "transposed": lambda x, c: x.copy_(c(x.T)),
    "reversed": lambda x, c: x.copy_(c(x[ph.arange(39, -1, -1).tolist()])),
    "itself": lambda x, c: x.copy_(c(x)),
    "one row to all": lambda x, c: x.copy_(c(x[3])),
    "a cast of rows": lambda x, c: x[1:].copy_(c(x[:-1])),
    "rows added": lambda x, c: x[1:].add_(c(x[:-1])),
    "separate rows added": lambda x, c: x[2].add_(c(x[1])),
    "the transpose added": lambda x, c: x.add_(c(x.T)),
    "itself added": lambda x, c: x.add_(c(x)),
    "the transpose divided by": lambda x, c: x.div_(c(x.T)),
    "towards the transpose": lambda x, c: x.lerp_(c(x.T), 0.5),
    "addcmul": lambda x, c: x.addcmul_(c(x.T), c(x[0])),
    "indexed rows": _indexed,
    "all rows in reverse": _reversed_by_index,
    "all rows added in reverse": _added_in_reverse,
    "elements added in reverse": _scattered_in_reverse,
    "to the transpose": lambda x, c: x.T.copy_(c(x)),
    "added to the transpose": lambda x, c: x.T.add_(c(x)),
}


def start() -> np.ndarray:
    return np.random.default_rng(0).uniform(1, 2, (40, 40)).astype(np.float32)


def expected(write: Write) -> np.ndarray:
    x = torch.tensor(start())
    write(x, torch.clone)
    return x.numpy()


def same(tensor: ph.Tensor) -> ph.Tensor:
    return tensor


@pytest.mark.parametrize("name", WRITES)
def test_a_write_reads_its_source_before(device: ph.Device, name: str) -> None:
    x = ph.tensor(start(), device=device)
    WRITES[name](x, same)
    np.testing.assert_allclose(x.numpy(), expected(WRITES[name]), rtol=1e-6)


LINEAR = [n for n in WRITES if n not in ("the transpose divided by", "towards the transpose", "addcmul")]
"""Writes whose gradients need none of the elements that they replace."""


@pytest.mark.parametrize("name", LINEAR)
def test_a_write_on_the_tape_reads_its_source_before(device: ph.Device, name: str) -> None:
    leaf = ph.tensor(start(), device=device, requires_grad=True)
    x = leaf * 1
    WRITES[name](x, same)
    (x * x).sum().backward()
    other = torch.tensor(start(), requires_grad=True)
    y = other * 1
    WRITES[name](y, torch.clone)
    (y * y).sum().backward()
    np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-6)
    assert leaf.grad is not None
    assert other.grad is not None
    # Sums of up to 40 terms of float32.
    np.testing.assert_allclose(leaf.grad.numpy(), other.grad.numpy(), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in WRITES if n != "reversed"])  # it reads a tensor in Python
def test_each_call_of_a_captured_write_reads_its_source_before(device: ph.Device, name: str) -> None:
    x = ph.tensor(start(), device=device)
    step = ph.jit(lambda: WRITES[name](x, same))
    y = torch.tensor(start())
    for _ in range(4):
        step()
        WRITES[name](y, torch.clone)
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6)


@st.composite
def _windows(draw: st.DrawFn, shape: tuple[int, ...], length: int) -> tuple[tuple[int, ...], int]:
    """Return signed strides and an offset for which a tensor of `shape` is within a buffer of `length` elements."""
    strides = tuple(draw(st.integers(-7, 7)) for _ in shape)
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    return strides, draw(st.integers(-low, length - 1 - high))


@st.composite
def _two_windows(draw: st.DrawFn) -> Any:
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    return shape, draw(_windows(shape, 200)), draw(_windows(shape, 200))


def _positions(shape: tuple[int, ...], window: Any) -> np.ndarray:
    strides, offset = window
    return sum(
        (
            (np.arange(n) * s).reshape(-1, *(1,) * (len(shape) - 1 - k))
            for k, (n, s) in enumerate(zip(shape, strides, strict=True))
        ),
        start=np.full(shape, offset),
    )


@settings(max_examples=300)
@given(_two_windows())
def test_layouts_share_elements_exactly_if_a_position_is_in_both(case: Any) -> None:
    shape, *windows = case
    refs = [Ref(None, Spec(dtypes.float32, shape, strides), offset) for strides, offset in windows]
    mine, others = (set(_positions(shape, w).reshape(-1).tolist()) for w in windows)
    assert share_elements(*refs) is bool(mine & others)


def _windows_of(memory: Any, shape: tuple[int, ...], window: Any) -> Any:
    return apply(OPS["window"], (memory,), (shape, *window))


@settings(max_examples=40)
@given(_two_windows())
def test_any_window_is_copied_to_any_other_as_it_was(case: Any) -> None:
    shape, source, target = case
    places = _positions(shape, target)
    if len(np.unique(places)) < places.size:  # duplicate targets raise
        return
    values = np.arange(200, dtype=np.float32)
    right = values.copy()
    right[places] = values[_positions(shape, source)]
    for name in ("numpy", *["opencl:0"] * bool(registry().probe("opencl"))):
        x = ph.tensor(values, device=name)
        written = _windows_of(x, shape, target)
        try:
            written.copy_(_windows_of(x, shape, source))
        except ph.hal.errors.ShapeError:  # interleaved layouts are treated as self-overlapping
            return
        np.testing.assert_array_equal(x.numpy(), right)


def test_layouts_that_are_too_complex_to_decide_count_as_overlapping() -> None:
    shape = (30,) * 6
    spec = Spec(dtypes.float32, shape, (10007, 9973, 9967, 9949, 9941, 9931))
    assert share_elements(Ref(None, spec, 0), Ref(None, spec, 7))
