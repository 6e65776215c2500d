"""Choice of the kernels for convolution and its gradients."""

from __future__ import annotations

from polyhal.backends.common.problems.conv import Convolution, lowerings
from polyhal.backends.common.problems.conv_planes import as_forward_conv
from polyhal.backends.opencl_c.lowering.conv import (
    boxes,
    channels_first,
    columns,
    cpu_choice,
    cpu_im2col,
    cpu_implicit_gemm,
    cpu_planes,
    cpu_weight_grad,
    cpu_winograd,
    depthwise,
    direct,
    implicit_gemm,
    local_images,
    products,
    wgmma,
    winograd,
    winograd_weight_grad,
)
from polyhal.backends.opencl_c.lowering.conv.split_k import add_up
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch


def _forward(runtime: Runtime, c: Convolution) -> Launch | Declined:
    if not runtime.features.cpu:
        launch = products.forward(runtime, c) or boxes.forward(runtime, c)
        if launch is not None:
            return launch
    if not c.out.is_contiguous:
        return _strided(runtime, c, wgmma.forward)
    if runtime.features.cpu:
        if cpu_winograd.is_faster(runtime, c.geometry, c.out):
            return cpu_winograd.forward(runtime, c)
        if cpu_choice.prefers_im2col_forward(runtime, c):
            return cpu_im2col.forward(runtime, c)
        return cpu_implicit_gemm.forward(runtime, c) or cpu_planes.forward(runtime, c)
    if depthwise.supports(c):
        return depthwise.forward(runtime, c)
    if direct.is_faster(runtime, c) and c.second.is_contiguous:
        return direct.forward(runtime, c)
    launch = local_images.forward(runtime, c) or channels_first.forward(runtime, c) or winograd.forward(runtime, c)
    return launch or wgmma.fastest(runtime, c, wgmma.forward) or implicit_gemm.forward(runtime, c)


def _input_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    if not runtime.features.cpu:
        launch = products.input_grad(runtime, c) or boxes.input_grad(runtime, c) or columns.input_grad(runtime, c)
        if launch is not None:
            return launch
    if not c.out.is_contiguous:
        return _strided(runtime, c, wgmma.input_grad)
    if runtime.features.cpu:
        if cpu_winograd.is_faster(runtime, as_forward_conv(c.geometry), c.out):
            return cpu_winograd.input_grad(runtime, c)
        if cpu_choice.prefers_im2col_input_grad(runtime, c):
            return cpu_im2col.input_grad(runtime, c)
        return cpu_implicit_gemm.input_grad(runtime, c) or cpu_planes.input_grad(runtime, c)
    if depthwise.supports(c):
        return depthwise.input_grad(runtime, c)
    if not runtime.features.local_memory_is_real and c.second.is_contiguous:
        return direct.input_grad(runtime, c)
    launch = (
        local_images.input_grad(runtime, c) or channels_first.input_grad(runtime, c) or winograd.input_grad(runtime, c)
    )
    return launch or wgmma.fastest(runtime, c, wgmma.input_grad) or implicit_gemm.input_grad(runtime, c)


def _weight_grad(runtime: Runtime, c: Convolution) -> Launch | Declined:
    if not c.out.is_contiguous:
        return Declined("the result is not contiguous")
    if runtime.features.cpu:
        if cpu_choice.prefers_im2col_weight_grad(runtime, c):
            return cpu_im2col.weight_grad(runtime, c)
        return cpu_weight_grad.weight_grad(runtime, c)
    if depthwise.supports(c, weight_grad=True):
        return depthwise.weight_grad(runtime, c)
    launch = products.weight_grad(runtime, c) or boxes.weight_grad(runtime, c) or channels_first.weight_grad(runtime, c)
    launch = launch or winograd_weight_grad.weight_grad(runtime, c)
    if launch is not None:
        return launch
    return wgmma.fastest(runtime, c, wgmma.weight_grad) or implicit_gemm.weight_grad(runtime, c)


def _strided(runtime: Runtime, c: Convolution, build: wgmma.Build) -> Launch | Declined:
    """Build a convolution whose result is not contiguous, such as images with channels last."""
    launch = None if runtime.features.cpu else wgmma.fastest(runtime, c, build)
    return launch or Declined("the result is not contiguous")


LOWERINGS = lowerings(_forward, _input_grad, _weight_grad, add_up)
