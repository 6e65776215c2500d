"""Rows picked by index, and rows added by index."""

from __future__ import annotations

from collections.abc import Callable

from polyhal.backends.common.expressions import register_class
from polyhal.backends.opencl.launch import Constant, Tensor
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {}


def gather(runtime: Runtime, index: Spec, x: Spec, out: Spec) -> Launch:
    """A launch (index, x, out): rows of `x`, zeros where an index is out of range."""
    count, width = out.shape
    definitions: dict[str, str | int | bool] = {"DTYPE": x.dtype.name, "INDEX_DTYPE": index.dtype.name}
    parameters = [
        Tensor(0), Tensor(1), Tensor(2), Constant(count, "ulong"), Constant(width, "ulong"), Constant(x.shape[0], "ulong"),
    ]  # fmt: skip
    group = runtime.features.group_size
    return runtime.launch("gather", "gather", definitions, parameters, (count * width,), (group,))


def scatter_add(runtime: Runtime, index: Spec, source: Spec, out: Spec) -> Launch:
    """A launch (index, source, out) that adds rows; each column is walked by one work-item, in order, so it is exact
    about the order of additions and needs no atomics."""
    count, width = source.shape
    definitions: dict[str, str | int | bool] = {"DTYPE": out.dtype.name, "INDEX_DTYPE": index.dtype.name}
    parameters = [
        Tensor(0), Tensor(1), Tensor(2), Constant(count, "ulong"), Constant(width, "ulong"), Constant(out.shape[0], "ulong"),
    ]  # fmt: skip
    group = runtime.features.group_size
    return runtime.launch("scatter_add", "scatter_add", definitions, parameters, (width,), (group,))


__all__ = ["LOWERINGS", "gather", "register_class", "scatter_add"]
