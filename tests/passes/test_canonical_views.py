"""Windows and copies that a recording holds become reshapes, permutations and `contiguous`."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal import Device
from polyhal.hal.compile.ir.parse import parse
from polyhal.hal.compile.passes.simplify.canonical_views import canonicalize_views
from polyhal.hal.layout import contiguous_strides

from .golden import check
from .rich_device import rich_device


def test_windows_of_whole_tensors() -> None:
    check(
        canonicalize_views,
        """
        %0: float32[4, 6]
        on it
        %1 = window(%0, shape=(24,), strides=(1,), offset=0): float32[24]
        %2 = window(%0, shape=(6, 4), strides=(1, 6), offset=0): float32[6, 4] strides [1, 6]
        %3 = window(%0, shape=(3, 4, 2), strides=(2, 6, 1), offset=0): float32[3, 4, 2] strides [2, 6, 1]
        return %1, %2, %3
        """,
        """
        %0: float32[4, 6]
        on it
        %1 = reshape(%0, shape=(24,)): float32[24]
        %2 = permute(%0, axes=(1, 0)): float32[6, 4] strides [1, 6]
        %3 = reshape(%0, shape=(4, 3, 2)): float32[4, 3, 2]
        %4 = permute(%3, axes=(1, 0, 2)): float32[3, 4, 2] strides [2, 6, 1]
        return %1, %2, %4
        """,
        rich_device(),
    )


def test_parts_stay_windows() -> None:
    text = """
        %0: float32[4, 6]
        on it
        %1 = window(%0, shape=(4, 3), strides=(6, 1), offset=3): float32[4, 3] strides [6, 1]
        %2 = window(%0, shape=(4, 6), strides=(0, 1), offset=0): float32[4, 6] strides [0, 1]
        return %1, %2
        """
    check(canonicalize_views, text, text, rich_device())


def test_copies_whose_memory_leaves_the_graph_stay() -> None:
    check(
        canonicalize_views,
        """
        %0: float32[4, 6]
        on it
        %1 = copy(%0): float32[4, 6]
        %2 = exp(%1): float32[4, 6]
        %3 = copy(%0): float32[4, 6]
        %4 = copy(%0): float32[4, 6]
        %5 = permute(%4, axes=(1, 0)): float32[6, 4] strides [1, 6]
        return %2, %3, %5
        """,
        """
        %0: float32[4, 6]
        on it
        %1 = contiguous(%0): float32[4, 6]
        %2 = exp(%1): float32[4, 6]
        %3 = copy(%0): float32[4, 6]
        %4 = copy(%0): float32[4, 6]
        %5 = permute(%4, axes=(1, 0)): float32[6, 4] strides [1, 6]
        return %2, %3, %5
        """,
        rich_device(),
    )


def test_parts_put_together_again() -> None:
    check(
        canonicalize_views,
        """
        %0: float32[3]
        %1: float32[2]
        on it
        %2 = exp(%0): float32[3]
        %3 = window(%2, shape=(1,), strides=(1,), offset=0): float32[1]
        %4 = window(%2, shape=(2,), strides=(1,), offset=1): float32[2]
        %5 = concat(%3, %4, axis=0): float32[3]
        %6 = concat(%4, %3, axis=0): float32[3]
        %7 = concat(%3, %1, axis=0): float32[3]
        %8 = concat(%3, %4, axis=0): float32[3]
        %9 = add(%5, %6): float32[3]
        %10 = add(%9, %7): float32[3]
        return %10, %8
        """,
        """
        %0: float32[3]
        %1: float32[2]
        on it
        %2 = exp(%0): float32[3]
        %3 = window(%2, shape=(1,), strides=(1,), offset=0): float32[1]
        %4 = window(%2, shape=(2,), strides=(1,), offset=1): float32[2]
        %5 = reshape(%2, shape=(3,)): float32[3]
        %6 = concat(%4, %3, axis=0): float32[3]
        %7 = concat(%3, %1, axis=0): float32[3]
        %8 = concat(%3, %4, axis=0): float32[3]
        %9 = add(%5, %6): float32[3]
        %10 = add(%9, %7): float32[3]
        return %10, %8
        """,
        rich_device(),
    )


def test_copies_before_a_concatenation() -> None:
    check(
        canonicalize_views,
        """
        %0: float32[2, 3, 4, 5]
        %1: float32[2, 1, 4, 5]
        on it
        %2 = permute(%0, axes=(0, 2, 1, 3)): float32[2, 4, 3, 5] strides [60, 5, 20, 1]
        %3 = copy(%2): float32[2, 4, 3, 5]
        %4 = window(%3, shape=(2, 4, 15), strides=(60, 15, 1), offset=0): float32[2, 4, 15]
        %5 = permute(%1, axes=(0, 2, 1, 3)): float32[2, 4, 1, 5] strides [20, 5, 20, 1]
        %6 = copy(%5): float32[2, 4, 1, 5]
        %7 = window(%6, shape=(2, 4, 5), strides=(20, 5, 1), offset=0): float32[2, 4, 5]
        %8 = concat(%4, %7, axis=2): float32[2, 4, 20]
        return %8
        """,
        """
        %0: float32[2, 3, 4, 5]
        %1: float32[2, 1, 4, 5]
        on it
        %2 = permute(%0, axes=(0, 2, 1, 3)): float32[2, 4, 3, 5] strides [60, 5, 20, 1]
        %3 = permute(%1, axes=(0, 2, 1, 3)): float32[2, 4, 1, 5] strides [20, 5, 20, 1]
        %4 = concat(%2, %3, axis=2): float32[2, 4, 4, 5]
        %5 = reshape(%4, shape=(2, 4, 20)): float32[2, 4, 20]
        return %5
        """,
        rich_device(),
    )


def test_copies_along_other_axes_are_joined_as_they_are() -> None:
    text = """
        %0: float32[2, 3]
        %1: float32[2, 3]
        on it
        %2 = permute(%0, axes=(1, 0)): float32[3, 2] strides [1, 3]
        %3 = contiguous(%2): float32[3, 2]
        %4 = reshape(%3, shape=(6,)): float32[6]
        %5 = contiguous(%1): float32[2, 3]
        %6 = reshape(%5, shape=(6,)): float32[6]
        %7 = concat(%4, %6, axis=0): float32[12]
        return %7
        """
    check(canonicalize_views, text, text, rich_device())


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(3)), st.tuples(*[st.integers(1, 4)] * 3))
def test_renamed_windows_show_the_same_elements(order: list[int], lengths: tuple[int, ...]) -> None:
    """The window's axis i is axis order[i] of a row-major layout."""
    steps = contiguous_strides(lengths)
    shape, strides = tuple(lengths[i] for i in order), tuple(steps[i] for i in order)
    size = int(np.prod(lengths))
    spec = f"float32[{', '.join(map(str, shape))}] strides [{', '.join(map(str, strides))}]"
    if strides == contiguous_strides(shape):
        spec = spec.partition(" strides")[0]
    graph = parse(
        f"%0: float32[{size}]\non numpy\n"
        f"%1 = window(%0, shape={shape}, strides={strides}, offset=0): {spec}\n%2 = exp(%1): float32{list(shape)}\nreturn %2",
        Device("numpy"),
    )
    x = np.arange(size)
    value = x
    for node in canonicalize_views(graph).nodes:
        if node.op.name == "exp":
            break
        (param,) = node.params if node.op.name != "window" else (None,)
        if param is None:  # an axis of length 1 whose step no row-major layout has
            assert 1 in shape
            return
        value = value.reshape(param) if node.op.name == "reshape" else value.transpose(param)
    wanted = np.lib.stride_tricks.as_strided(x, shape, tuple(s * x.itemsize for s in strides))
    np.testing.assert_array_equal(value, wanted)
