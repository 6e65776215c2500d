"""Convolutions with few results and many terms, such as weight gradients of depthwise ones: one workgroup per column.

Kernel: shaders/wgsl/conv/direct_weight_grad.wgsl.
"""

from __future__ import annotations

from polyhal.backends.common.problems.conv import Correlation
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.wgpu.lowering.conv.arguments import arguments
from polyhal.backends.wgpu.lowering.gemm.arguments import definitions
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.protocol import Launch

_GROUP = 128
_GROUP_CPU = 8


def build(runtime: Runtime, c: Correlation, p: Product) -> Launch:
    """Return the launch of a correlation; `p` is its product, with arguments."""
    group = _GROUP_CPU if runtime.features.cpu else _GROUP
    variables = {
        **definitions(p, split=False),
        **group_reduce.definitions(runtime, group, group),
        "ROWS": c.m,
        "OUT_LANES": 1,
    }
    return runtime.launch("conv/direct_weight_grad", variables, arguments(c, p, c.k, split=False), c.groups * c.n)
