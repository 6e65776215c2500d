"""Scans of one very long row by groups that stay and copy tiles ahead (see shaders/opencl/reduction/scan_ahead.cl)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.rows import StridedRows
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange_of_words
from polyhal.backends.opencl_c.ptx import WHOLE_PROGRAM
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.protocol import Launch

_GROUP = 512
_VECTORS = 8
"""Vectors of four elements of a work-item: tiles of 16,384 elements, three of which fill 192 KiB of local memory.

On an H200, 3,361 GB/s for a row of 2^28 elements, which look-back reads and writes at 2,648. Tiles of half the size reach 2,835
in groups of 512 and 2,312 in groups of 1,024.
"""
_TILES = 3
_OTHER_MEMORY = 1 << 10
_MIN_TILES = 48
"""Minimum tiles per compute unit. A launch takes about 85 µs longer than look-back's before it is faster."""


def suits(features: KernelFeatures, specs: Sequence[Spec], merged: StridedRows, itemsize: int, width: int) -> bool:
    """Return whether the kernel supports a scan in `width` elements at a time, and is faster than look-back."""
    words = all(s.dtype.itemsize == itemsize == 4 and s.dtype.kind == specs[0].dtype.kind for s in specs)
    memory = _TILES * 16 * _VECTORS * _GROUP + _OTHER_MEMORY
    able = features.forward_progress and features.max_group_size >= _GROUP and features.static_local_memory >= memory
    return able and words and width == 4 and merged.count == 1 and _tiles(merged) >= _MIN_TILES * features.compute_units


def _tiles(merged: StridedRows) -> int:
    return ceil_div(merged.length, 4 * _VECTORS * _GROUP)


def scan_ahead(runtime: Runtime, merged: StridedRows, definitions: Mapping[str, str | int | bool]) -> Launch:
    """Build the launches of a scan (x, out)."""
    tiles = _tiles(merged)
    values = contiguous(dtypes.int64, (1 + tiles,))
    scan = runtime.launch(
        "reduction/scan_ahead",
        {
            **definitions,
            "GROUP": _GROUP,
            "VECTORS": _VECTORS,
            "EXCHANGE": exchange_of_words(runtime),
            "TENSOR_CORES": runtime.features.tensor_cores,
        },
        {"x": Tensor(0), "out": Tensor(1), "state": Workspace(2), "length": merged.length, "tiles": tiles},
        (min(tiles, runtime.features.compute_units) * _GROUP,),
        (_GROUP,),
        target=WHOLE_PROGRAM,
    )
    return LaunchSequence([copy.fill_workspace(runtime, values, 2), scan], (values.nbytes,))
