"""Scans of long rows in one pass, on devices whose groups may wait for earlier ones.

x is read once and out is written once; totals take a few words per tile (see shaders/opencl/reduction/scan_lookback.cl).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems.rows import StridedRows
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange_of_words
from polyhal.backends.opencl_c.lowering.support.rows import row_args
from polyhal.backends.opencl_c.ptx import WHOLE_PROGRAM, Target
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.protocol import Launch

_GROUP = 512
_EACH = 16
"""Elements of a work-item.

On an H200, tiles of 8,192 elements in groups of 512 are fastest: 1,923 GB/s. Groups of 256 reach 1,578 GB/s with 4,096
elements and 1,486 with 8,192, groups of 1,024 reach 1,364.
"""
_OCCUPANCY = Target(groups=3, whole=True)
"""Compilation target for totals of 32 bits: fewer registers, so that more groups are resident. On an H200, 2,078 GB/s, and
2,648 with vectors of four elements."""
_WARP = 32
"""Work-items of a warp, and tiles of a block."""


def fits(features: KernelFeatures) -> bool:
    """Return whether a device can run the kernel."""
    return features.forward_progress and features.max_group_size >= _GROUP


def look_back(
    runtime: Runtime,
    specs: Sequence[Spec],
    merged: StridedRows,
    itemsize: int,
    width: int,
    definitions: Mapping[str, str | int | bool],
) -> Launch:
    """Build the launches of a scan (x, out) of rows whose totals have `itemsize` bytes, in vectors of `width` elements."""
    vectors = max(1, _EACH // width)
    words = itemsize // 4
    tiles = ceil_div(merged.length, _GROUP * vectors * width)
    blocks = ceil_div(tiles, _WARP)
    state = 1 + merged.count * words * (tiles + blocks * (2 if definitions["COMPENSATED"] else 1))
    scan = runtime.launch(
        "reduction/scan_lookback",
        {
            **definitions,
            "WIDTH": width,
            "ALIGNED": width > 1,
            "GROUP": _GROUP,
            "VECTORS": vectors,
            "WORDS": words,
            "EXCHANGE": exchange_of_words(runtime),
        },
        {
            "x": Tensor(0),
            "out": Tensor(1),
            "state": Workspace(2),
            **row_args(merged, "x", "out"),
            "tiles": tiles,
            "blocks": blocks,
        },
        (merged.count * tiles * _GROUP,),
        (_GROUP,),
        target=_OCCUPANCY if words == 1 and runtime.features.compute_capability else WHOLE_PROGRAM,
    )
    values = contiguous(dtypes.int64, (state,))
    return LaunchSequence([copy.fill_workspace(runtime, values, 2), scan], (values.nbytes,))
