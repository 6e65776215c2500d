"""Convolution and batch norm of images with channels last in half precision: the product stores moments of its results.

So batch norm needs no pass over them for its statistics.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import conv
from polyhal.backends.common.problems.batch_norm import ChannelPlanes
from polyhal.backends.common.problems.conv import Convolution
from polyhal.backends.common.problems.norm import Inputs, parameter_refusal
from polyhal.backends.opencl_c.lowering.conv import boxes, products
from polyhal.backends.opencl_c.lowering.conv.arguments import Args
from polyhal.backends.opencl_c.lowering.gemm import cluster_tiles
from polyhal.backends.opencl_c.lowering.gemm.arguments import geometry
from polyhal.backends.opencl_c.lowering.rowwise import batch_norm_rows
from polyhal.backends.opencl_c.lowering.rowwise.arguments import tensors
from polyhal.backends.opencl_c.lowering.support.column_moments import ROWS, VECTOR
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, is_channels_last
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_NAMES = ("x", "filters", "addend", "weight", "bias", "out", "means", "variances", "product")
_TARGET = _NAMES.index("product")


def _forward(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    images, filters, _, *parameters = inputs
    product = outputs[-1]
    reason = _refusal(runtime, inputs, outputs) or parameter_refusal(*parameters)
    if reason:
        return Declined(reason)
    assert isinstance(images, Spec)
    assert isinstance(filters, Spec)
    g = conv.geometry(images.shape, filters.shape, product.shape, {**params, "groups": 1})
    multiply = _multiply(runtime, Convolution(g, images, filters, product, None, _TARGET, "highest"))
    if multiply is None:
        return Declined("the kernel of this convolution computes no moments")
    pixels, channels = g.images * g.pixels, g.filters
    planes = ChannelPlanes(pixels, channels, 1, (channels, 1))
    specs = dict(zip(_NAMES, (*inputs, *outputs), strict=True))
    memory = {name: x for name, x in tensors(specs).items() if name not in ("x", "filters", "product")}
    memory["x"] = tensors(specs)["product"]
    moments: Args = {"moments": Workspace(_TARGET + len(multiply.workspace)), "blocks": pixels // ROWS}
    normalize = batch_norm_rows.from_moments(runtime, planes, memory, specs, product.dtype, moments, params)
    return LaunchSequence([multiply, *normalize], multiply.workspace)


def _refusal(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...]) -> str:
    """Return the reason why no kernel supports these operands; empty if one may."""
    images, filters, addend, *_ = inputs
    out, *_, product = outputs
    if not runtime.features.clusters or product.dtype not in (dtypes.float16, dtypes.bfloat16):
        return "only Hopper's tensor cores compute moments, of results in half precision"
    if any(not isinstance(s, Spec) or s.dtype is not product.dtype for s in (images, filters, addend) if s is not None):
        return "the operands have different dtypes"
    kept = [s for s in (addend, out, product) if isinstance(s, Spec)]
    if not all(is_channels_last(s) and s.aligned for s in kept):
        return "an operand has not the layout of channels last"
    _, channels, *size = product.shape
    if channels % VECTOR or product.shape[0] * math.prod(size) % ROWS:
        return f"the pixels, of {channels} channels, are not whole blocks of {ROWS}"
    return ""


def _multiply(runtime: Runtime, c: Convolution) -> Launch | None:
    """Build the convolution with moments in its last workspace; None if its kernel cannot store them."""
    p = products.forward_product(c)
    if p is None:
        return boxes.forward(runtime, c, moments=True) if boxes.covers_exactly(c) else None
    if not cluster_tiles.suits(runtime, p) or cluster_tiles.splits(runtime, p):
        return None
    launches, workspace = cluster_tiles.multiply(runtime, p, p, geometry(p), p.workspace, moments=True)
    return LaunchSequence(launches, workspace)


LOWERINGS: dict[str, LoweringFunction] = {"conv2d_batch_norm": _forward}
