"""The algebra of views against NumPy's own strides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal.hal import dtypes, layout
from polyhal.hal.layout import Spec

SHAPES = st.lists(st.integers(0, 5), max_size=5).map(tuple)
FILLED = st.lists(st.integers(1, 5), max_size=5).map(tuple)


@st.composite
def views(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draw a random view, and its base array."""
    base = np.arange(math.prod(shape := draw(FILLED)), dtype=np.int64).reshape(shape)
    view = base.transpose(draw(st.permutations(range(base.ndim))))
    view = view[(*(slice(None, None, draw(st.sampled_from([1, 1, 2, -1]))) for _ in range(view.ndim)), ...)]
    if draw(st.booleans()) and view.ndim < 5:
        view = np.broadcast_to(view, (draw(st.integers(1, 3)), *view.shape))
    return view, base


def spec_of(view: np.ndarray) -> Spec:
    return Spec(dtypes.int64, view.shape, tuple(s // view.itemsize for s in view.strides))


def offset_of(view: np.ndarray, base: np.ndarray) -> int:
    return int(view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // view.itemsize


def taken(base: np.ndarray, view: layout.View, offset: int) -> np.ndarray:
    """Return the elements of a view of `base`."""
    positions = np.full(view.shape, offset + view.offset)
    for axis, stride in enumerate(view.strides):
        positions += (np.arange(view.shape[axis]) * stride).reshape(-1, *(1,) * (len(view.shape) - axis - 1))
    return base.reshape(-1)[positions]


@given(SHAPES)
def test_contiguous_strides_are_numpys(shape: tuple[int, ...]) -> None:
    strides = layout.contiguous_strides(shape)
    if 0 not in shape:
        expected = np.empty(shape, np.int8).strides
        assert all(a == b for a, b, n in zip(strides, expected, shape, strict=True) if n != 1)
    assert layout.is_contiguous(shape, strides)


@given(views())
def test_is_contiguous_is_numpys_flag(pair: tuple[np.ndarray, np.ndarray]) -> None:
    view, _ = pair
    spec = spec_of(view)
    assert spec.is_contiguous == view.flags.c_contiguous


@given(views())
def test_extent_agrees_with_numpy(pair: tuple[np.ndarray, np.ndarray]) -> None:
    view, base = pair
    low, high = layout.extent(view.shape, spec_of(view).strides)
    positions = taken(np.arange(base.size), layout.View(view.shape, spec_of(view).strides), offset_of(view, base))
    assert (positions.min(), positions.max()) == (low + offset_of(view, base), high + offset_of(view, base))


def test_extent_of_an_empty_view() -> None:
    assert layout.extent((3, 0), (1, 1)) == (0, -1)


@given(st.lists(SHAPES, min_size=1, max_size=3))
def test_broadcast_shapes_is_numpys(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            layout.broadcast_shapes(*shapes)
    else:
        assert layout.broadcast_shapes(*shapes) == expected


@given(FILLED, st.data())
def test_broadcast_strides_repeat_elements(target: tuple[int, ...], data: Any) -> None:
    tail = target[data.draw(st.integers(0, len(target))) :]
    shape = tuple(1 if data.draw(st.booleans()) else n for n in tail)
    base = np.arange(math.prod(shape)).reshape(shape)
    strides = layout.broadcast_strides(shape, layout.contiguous_strides(shape), target)
    np.testing.assert_array_equal(taken(base, layout.View(target, strides), 0), np.broadcast_to(base, target))


@pytest.mark.parametrize(("shape", "target"), [((2,), (3,)), ((2, 1), (2,)), ((4,), (2, 2))])
def test_broadcast_strides_refuse(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        layout.broadcast_strides(shape, layout.contiguous_strides(shape), target)


@settings(max_examples=300)
@given(views(), st.data())
def test_reshape_is_a_view_only_where_elements_stay_in_order(pair: tuple[np.ndarray, np.ndarray], data: Any) -> None:
    view, base = pair
    shape = _factors(view.size, data)
    found = layout.reshape(spec_of(view), shape)
    if found is None:
        copied = view.reshape(shape)
        # If NumPy avoids a copy, so must Polyhal, but not vice versa.
        assert not np.shares_memory(copied, base) or not copied.size
    else:
        np.testing.assert_array_equal(taken(base, found, offset_of(view, base)), view.reshape(shape))


def _factors(size: int, data: Any) -> tuple[int, ...]:
    out = []
    for _ in range(data.draw(st.integers(0, 4))):
        n = data.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        out.append(n)
        size //= n
    return (*out, size)


@given(views())
def test_permute_and_slice_follow_numpy(pair: tuple[np.ndarray, np.ndarray]) -> None:
    view, base = pair
    axes = tuple(reversed(range(view.ndim)))
    turned = layout.permute(spec_of(view), axes)
    np.testing.assert_array_equal(taken(base, turned, offset_of(view, base)), view.transpose(axes))
    starts, steps = tuple(n - 1 for n in view.shape), (-1,) * view.ndim
    reversed_view = layout.slice_view(spec_of(view), starts, view.shape, steps)
    np.testing.assert_array_equal(taken(base, reversed_view, offset_of(view, base)), np.flip(view))


@given(views())
def test_collapse_visits_the_same_elements(pair: tuple[np.ndarray, np.ndarray]) -> None:
    view, base = pair
    dense = layout.contiguous_strides(view.shape)
    shape, (steps, target) = layout.collapse(view.shape, (spec_of(view).strides, dense))
    assert math.prod(shape) == view.size
    assert len(shape) <= max(view.ndim, 1)
    np.testing.assert_array_equal(
        taken(base, layout.View(shape, steps), offset_of(view, base)).reshape(-1), view.reshape(-1)
    )
    np.testing.assert_array_equal(
        taken(np.arange(view.size), layout.View(shape, target), 0).reshape(-1), np.arange(view.size)
    )


@given(FILLED)
def test_collapse_merges_contiguous_axes_into_one(shape: tuple[int, ...]) -> None:
    merged, _ = layout.collapse(shape, (layout.contiguous_strides(shape),))
    assert merged == (math.prod(shape),)


def test_place_keeps_alignment_only_on_a_vector_boundary() -> None:
    spec = layout.contiguous(dtypes.float32, (64,))
    assert layout.place(spec, layout.View((16,), (1,), 2 * layout.ALIGNMENT)).aligned
    assert not layout.place(spec, layout.View((16,), (1,), 3)).aligned
    odd = layout.place(spec, layout.View((16,), (1,), 3))
    assert not layout.place(odd, layout.View((8,), (1,), layout.ALIGNMENT)).aligned


@pytest.mark.parametrize(("axis", "ndim", "expected"), [(0, 3, 0), (-1, 3, 2), (2, 3, 2)])
def test_normalize_axis(axis: int, ndim: int, expected: int) -> None:
    assert layout.normalize_axis(axis, ndim) == expected


def test_normalize_axes_refuses() -> None:
    assert layout.normalize_axes(None, 2) == (0, 1)
    assert layout.normalize_axes((-1, 0), 3) == (0, 2)
    with pytest.raises(ValueError, match="out of range"):
        layout.normalize_axes(3, 3)
    with pytest.raises(ValueError, match="twice"):
        layout.normalize_axes((0, -3), 3)


def test_spec_describes_itself() -> None:
    assert str(layout.contiguous(dtypes.float32, (2, 3))) == "float32[2, 3]"
    assert str(Spec(dtypes.float32, (2, 3), (1, 2))) == "float32[2, 3] strides [1, 2]"
    assert layout.contiguous(dtypes.float16, (2, 3)).nbytes == 12
