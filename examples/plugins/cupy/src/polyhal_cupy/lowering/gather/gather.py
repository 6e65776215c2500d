"""Embedding: rows of a table by index. Kernel: kernels/gather/gather.cu."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Strided, Tensor
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.gather import flat_stride
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch
from polyhal_cupy.launch import KernelLaunch
from polyhal_cupy.runtime import Runtime

_BLOCK = 256
_LOAD_BYTES = (16, 8, 4, 2, 1)
NOT_A_TENSOR = Declined("an operand is a number")


def _gather(runtime: Runtime, index: Spec, x: Spec, out: Spec, places: tuple[int, int, int]) -> KernelLaunch | Declined:
    """Return the launch; `places` are the argument indices of index, x and out."""
    step = flat_stride(index)
    if step is None:
        return Declined("the index is not evenly spaced")
    size = x.dtype.itemsize
    width, row, column = x.shape[1], x.strides[0], x.strides[1] if x.shape[1] > 1 else 1
    if width >= 1 << 31:
        return Declined("an axis is longer than 2^31")
    nbytes = size
    if column == 1 and x.aligned and out.aligned:
        nbytes = next(n for n in _LOAD_BYTES if n == size or (n > size and width * size % n == 0 == row * size % n))
    ratio = nbytes // size
    items = index.size * (width // ratio)
    args: Arguments = {
        "index": Strided(Tensor(places[0]), {"step": step}),
        "x": Strided(Tensor(places[1]), {"row": row // ratio, "column": column}), "out": Tensor(places[2]), "items": items,
        "width": width // ratio, "rows": x.shape[0],
    }  # fmt: skip
    definitions: dict[str, str | int | bool] = {
        "INDEX_DTYPE": index.dtype.name, "ELEMENT_BYTES": nbytes, "BLOCK": _BLOCK
    }  # fmt: skip
    return runtime.launch("gather", "gather/gather", definitions, args, ceil_div(items, _BLOCK), _BLOCK)


def gather(runtime: Runtime, index: Spec, x: Spec, out: Spec) -> Launch:
    """Return a launch (index, x, out): rows of `x`, or zeros where an index is out of range. All are contiguous."""
    launch = _gather(runtime, index, x, out, (0, 1, 2))
    assert not isinstance(launch, Declined)
    return launch


def _embedding(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    weight, index = inputs
    if not isinstance(weight, Spec) or not isinstance(index, Spec):
        return NOT_A_TENSOR
    return _gather(runtime, index, weight, outputs[0], (1, 0, 2))


LOWERINGS: dict[str, LoweringFunction] = {"embedding": _embedding}
