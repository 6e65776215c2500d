"""Kernel arguments common to several families."""

from __future__ import annotations

from collections.abc import Sequence

from polyhal.backends.common.launching.launch import Tensor
from polyhal.hal.protocol import InputSpec

_WINDOW = (
    "height", "width", "down", "across", "kernel_h", "kernel_w", "stride_h", "stride_w", "padding_h", "padding_w",
    "dilation_h", "dilation_w",
)  # fmt: skip


def present(names: Sequence[str], specs: Sequence[InputSpec | None]) -> dict[str, Tensor]:
    """Return the first arguments of an op under the kernel's names, without absent ones."""
    return {name: Tensor(i) for i, (name, spec) in enumerate(zip(names, specs, strict=True)) if spec is not None}


def window_lengths(*lengths: int) -> dict[str, int]:
    """Name height and width of image, result, kernel, stride, padding and dilation."""
    return dict(zip(_WINDOW, lengths, strict=True))
