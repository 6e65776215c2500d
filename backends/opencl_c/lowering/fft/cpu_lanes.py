"""Passes of Fourier transforms over neighbouring rows in the lanes of vectors, for CPUs."""

from __future__ import annotations

import math

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.problems.fft import Pass, PassLimits, Planes
from polyhal.backends.common.problems.fft_arguments import pass_arguments
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.fft.operands import memory
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.protocol import Launch

_MAX_LENGTH = 4096
"""Elements of a row of a transform in one pass."""
_MAX_LENGTH_OF_SEVERAL = 2048
"""Elements of a row if a transform takes several passes."""
_BUFFERS = 1024 << 10
"""Maximum bytes of the four buffers, which are on a thread's stack and should stay in the second-level cache."""
_EACH = 4096
"""Minimum numbers that a work-item transforms, to amortize its start."""


def limits(features: KernelFeatures, dtype: DType) -> PassLimits:
    """Return the lengths of passes."""
    return PassLimits(_MAX_LENGTH, _MAX_LENGTH_OF_SEVERAL)


def launch(runtime: Runtime, step: Pass, dtype: DType) -> Launch:
    """Build the launch of a pass. Raises KernelBuildError."""
    width = _width(runtime.features, step.length, dtype.itemsize)
    arguments = pass_arguments(step, width, dtype.itemsize, vectors=True)
    blocks = math.prod(step.outer) * ceil_div(step.lanes, width)
    each = max(1, _EACH // (step.length * width))
    apart = 1 if _order(step.source, 1) or not _order(step.source, 2) else 2
    order = _order(step.source, apart)
    definitions: Definitions = {
        **arguments.definitions,
        "REAL": real_type(dtype),
        "WIDTH": width,
        "SOURCE_ORDER": order,
        "SOURCE_STEP": apart,
        "TARGET_ORDER": _order(step.target, 1),
        "TARGET_PAIRS": step.whole_rows and _in_pairs(step.target),
        "WHOLE_ROWS": step.whole_rows,
    }
    return runtime.launch(
        "fft/cpu_lanes",
        definitions,
        {
            **memory("source", step.source),
            **memory("target", step.target),
            "table": arguments.table,
            "scale": step.store.scale,
            "blocks_each": each,
            "all_blocks": blocks,
            **arguments.geometry,
        },
        (ceil_div(blocks, each),),
        (1,),
    )


def _in_pairs(planes: Planes) -> bool:
    """Return whether neighbours in memory are the imaginary and the real part of an element, as in inverse transforms."""
    re, im = planes.re, planes.im
    if re is None or im is None or re.memory != im.memory or re.strides != im.strides:
        return False
    return re.strides[-1] == 2 and re.start == im.start + 1


def _width(features: KernelFeatures, length: int, itemsize: int) -> int:
    """Return the rows of a vector: the device's lanes, or fewer if the buffers would be too large."""
    width = max(2, min(16, features.vector_width * 4 // itemsize))
    while width > 2 and 4 * length * width * itemsize > _BUFFERS:
        width //= 2
    return width


def _order(planes: Planes, apart: int) -> int:
    """Return SOURCE_ORDER or TARGET_ORDER of fft/cpu_lanes.cl: which neighbours are `apart` elements apart in memory."""
    strides = [p.strides for p in (planes.re, planes.im) if p is not None]
    if all(s[4] == apart for s in strides):
        return 1
    return 2 if all(s[5] == apart for s in strides) else 0
