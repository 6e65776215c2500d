"""Convolution straight from memory on GPUs: groups of few filters, as in depthwise convolution."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Constant, Tensor
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.opencl.lowering.gemm.arguments import longs, uints
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch


def forward(runtime: Runtime, c: Convolution) -> Launch | Declined:
    g, x, weight, out = c.geometry, c.first, c.second, c.out
    if not weight.is_contiguous:
        return Declined("the weight is not contiguous")
    bias = [] if c.bias is None else [Tensor(c.bias)]
    lengths = (*g.size, *g.result, *g.kernel, *g.stride, *g.padding, *g.dilation)
    return runtime.launch(
        "conv_direct", "conv/direct",
        {"DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name, "REAL": real_type(out.dtype), "BIAS": c.bias is not None},
        [
            Tensor(0), Tensor(1), *bias, Tensor(c.target), *uints(g.images, g.groups, g.channels, g.filters),
            *(Constant(v, "int") for v in lengths), *longs(*x.strides),
        ],
        (g.pixels, g.groups * g.filters, g.images), (runtime.features.group_size, 1, 1),
    )  # fmt: skip
