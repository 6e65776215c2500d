"""Axes extended by their own elements, or by a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.nn import functional
from polyhal.torch.registration import aten
from polyhal.torch.table.operands import F, pulled_back


@aten("constant_pad_nd", keeps_format=True)
def constant_pad(x: Any, pad: Sequence[int], value: Any = 0) -> Any:
    return functional.pad(x, pad, "constant", value) if any(pad) else F["copy"](x)


@aten("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", keeps_format=True)
def reflection_pad(x: Any, pad: Sequence[int]) -> Any:
    return functional.pad(x, pad, "reflect")


@aten("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward", keeps_format=True)
def reflection_pad_backward(grad: Any, x: Any, pad: Sequence[int]) -> Any:
    return pulled_back(lambda x: functional.pad(x, pad, "reflect"), grad, x)


@aten("replication_pad1d", "replication_pad2d", "replication_pad3d", keeps_format=True)
def replication_pad(x: Any, pad: Sequence[int]) -> Any:
    return functional.pad(x, pad, "replicate")


@aten("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward", keeps_format=True)
def replication_pad_backward(grad: Any, x: Any, pad: Sequence[int]) -> Any:
    return pulled_back(lambda x: functional.pad(x, pad, "replicate"), grad, x)
