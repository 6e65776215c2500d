"""Max pooling with any windows and its gradient on CPUs, several windows of a row at a time."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Workspace
from polyhal.backends.common.problems.pooling import Pooling
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.conv.cpu_layout import itemsize, lanes
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_ITEMS_PER_UNIT = 16
"""Work-items per compute unit, for load balance."""
_WIDTHS = (4, 8, 16)


def max_pool(runtime: Runtime, pooling: Pooling, args: Args, *, gradient: bool) -> Launch:
    """Build the launch of a pooling; `args` has its operands, geometry and channels, and workspaces follow the operands."""
    real = real_type(pooling.dtype)
    height, width, down, across, kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, *dilation = (
        pooling.lengths
    )
    most = lanes(runtime, real)
    vector = next((w for w in _WIDTHS if across <= w < most), most)
    # A row may end with less than a vector of windows, and vectors of every second element are read as a whole.
    columns = ceil_div(across, vector) * vector
    rows = max((down - 1) * stride_h + (kernel_h - 1) * dilation[0] + 1, padding_h + height)
    pitch = max((columns - 1) * stride_w + (kernel_w - 1) * dilation[1] + 2, padding_w + width)
    frame = rows * pitch + 2 * vector
    planes_each = ceil_div(pooling.planes, _ITEMS_PER_UNIT * runtime.features.compute_units)
    items = ceil_div(pooling.planes, planes_each)
    return runtime.launch(
        "conv/cpu_max_pool",
        {
            "DTYPE": pooling.dtype.name,
            "REAL": real,
            "MASK": "long" if real == "double" else "int",
            "WIDTH": vector,
            "STRIDE": stride_w if stride_w <= 2 else 0,
        },
        {
            **args,
            "frames": Workspace(3 if gradient else 2),
            "planes": pooling.planes,
            "planes_each": planes_each,
            "rows": rows,
            "pitch": pitch,
            "frame_length": frame,
        },
        (items,),
        (1,),
        kernel="conv_cpu_max_pool_grad" if gradient else "conv_cpu_max_pool",
        workspace=((2 if gradient else 1) * items * frame * itemsize(real),),
    )
