"""Direct convolution and its gradients, for groups of few filters and for GPUs whose local memory is not on the chip."""

from __future__ import annotations

import math

from polyhal.backends.common.launching.geometry import power_of_two_at_most
from polyhal.backends.common.launching.launch import Tensor
from polyhal.backends.common.problems import conv
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.opencl_c.lowering.conv.arguments import Args, geometry_args
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_FEW_FILTERS = 4
"""Maximum filters per group for which most of a matrix product's tile would be empty."""
_MAX_GROUP, _MAX_GROUP_OF_FEW = 256, 1024
"""Maximum work-items that sum one element of the weight gradient, and where elements are few."""
_FEW_TERMS = 16
"""Maximum terms per work-item for which a launch for few elements of the weight gradient is faster than two for its tiles."""


def is_faster(runtime: Runtime, c: Convolution) -> bool:
    """Return whether a matrix product is slower: its tiles would be mostly empty, or staged in local memory off the chip."""
    return c.geometry.filters <= _FEW_FILTERS or not runtime.features.local_memory_is_real


def sums_few(runtime: Runtime, c: Convolution) -> bool:
    """Return whether the weight gradient has about one element per compute unit, with sums that a group adds up quickly."""
    g, features = c.geometry, runtime.features
    group = min(_MAX_GROUP_OF_FEW, features.max_group_size)
    return c.out.size <= 2 * features.compute_units and g.images * g.pixels <= _FEW_TERMS * group


def forward(runtime: Runtime, c: Convolution) -> Launch | Declined:
    """Build a launch with one work-item per element of the output."""
    g, x, weight, out = c.geometry, c.first, c.second, c.out
    if not weight.is_contiguous:
        return Declined("the weight is not contiguous")
    args: Args = {
        "x": Tensor(0),
        "weight": Tensor(1),
        "out": Tensor(c.target),
        "groups": g.groups,
        "channels": g.channels,
        **geometry_args(conv.forward(g, x, weight, out)),
    }
    if c.bias is not None:
        args["bias"] = Tensor(c.bias)
    return runtime.launch(
        "conv/direct",
        {"DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name, "REAL": real_type(out.dtype), "BIAS": c.bias is not None},
        args,
        (g.pixels, g.groups * g.filters, g.images),
        (runtime.features.group_size, 1, 1),
    )


def input_grad(runtime: Runtime, c: Convolution) -> Launch:
    """Build a launch with one work-item per element of the input; the weight is contiguous."""
    g, grad, weight, out = c.geometry, c.first, c.second, c.out
    image, filter_, down, across = grad.strides
    return runtime.launch(
        "conv/direct_input_grad",
        {"DTYPE": grad.dtype.name, "OUT_DTYPE": out.dtype.name, "REAL": real_type(out.dtype)},
        {
            "g": Tensor(0),
            "weight": Tensor(1),
            "out": Tensor(c.target),
            "g_image": image,
            "g_filter": filter_,
            "g_down": down,
            "g_across": across,
            "channels": g.channels,
            **geometry_args(conv.forward(g, out, weight, grad)),
        },
        (math.prod(g.size), g.groups * g.channels, g.images),
        (runtime.features.group_size, 1, 1),
    )


def weight_grad(runtime: Runtime, c: Convolution) -> Launch:
    """Build a launch with one work-group per element of the weight."""
    g, grad, x, out = c.geometry, c.first, c.second, c.out
    features = runtime.features
    few = sums_few(runtime, c)
    group = power_of_two_at_most(
        min(_MAX_GROUP_OF_FEW, features.max_group_size) if few else min(_MAX_GROUP, features.group_size)
    )
    return runtime.launch(
        "conv/direct_weight_grad",
        {"DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name, "REAL": real_type(out.dtype), "GROUP": group},
        {
            "g": Tensor(0),
            "x": Tensor(1),
            "out": Tensor(2),
            "channels": g.channels,
            **geometry_args(conv.weight_gradient(g, grad, x, out)),
        },
        (out.size * group,),
        (group,),
    )
