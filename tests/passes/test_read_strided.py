"""Attention reads views of products, instead of copies of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyhal import Device
from polyhal.hal.compile.passes.layout.read_strided import read_strided

from .golden import check
from .rich_device import rich_device

_COPIED = """
    %0: float32[2, 5, 3, 8]
    %1: float32[2, 3, 5, 8]
    on it
    %2 = permute(%0, axes=(0, 2, 1, 3)): float32[2, 3, 5, 8] strides [120, 8, 24, 1]
    %3 = concat(%2, axis=2): float32[2, 3, 5, 8]
    %4 = contiguous(%2): float32[2, 3, 5, 8]
    %5, %6 = attention(%1, %3, %4, None, causal=True, scale=0.25): float32[2, 3, 5, 8], float32[2, 3, 5, 2]
    return %5
    """


def _device() -> Device:
    device = rich_device()
    capabilities = replace(device.backend.capabilities, strided_ops=frozenset({"attention"}))
    device.backend.capabilities = capabilities  # type: ignore[misc]
    return device


def test_copies_for_attention() -> None:
    check(
        read_strided,
        _COPIED,
        """
        %0: float32[2, 5, 3, 8]
        %1: float32[2, 3, 5, 8]
        on it
        %2 = permute(%0, axes=(0, 2, 1, 3)): float32[2, 3, 5, 8] strides [120, 8, 24, 1]
        %3, %4 = attention(%1, %2, %2, None, causal=True, scale=0.25): float32[2, 3, 5, 8], float32[2, 3, 5, 2]
        return %3
        """,
        _device(),
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return %5", "return %5, %3, %4"),  # The copies are results.
        ("return %5", "%7 = add(%3, %4): float32[2, 3, 5, 8]\n    return %5, %7"),  # Other ops read them, too.
    ],
)
def test_copies_that_others_read(old: str, new: str) -> None:
    text = _COPIED.replace(old, new)
    check(read_strided, text, text, _device())


def test_rows_that_are_not_aligned_are_copied() -> None:
    """Kernels would load single elements of rows of 7 features."""
    text = _COPIED.replace(", 8]", ", 7]").replace("strides [120, 8, 24, 1]", "strides [105, 7, 21, 1]")
    check(read_strided, text, text, _device())


def test_nothing_for_ops_that_read_rows_in_order() -> None:
    check(read_strided, _COPIED, _COPIED)
