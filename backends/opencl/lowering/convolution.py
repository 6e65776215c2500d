"""Convolution and its gradients.

On CPUs the windows are unrolled, some images at a time, straight into the panels of the matrix product (conv_pack.cl),
whose kernel then does the work. Groups of few channels, as in depthwise convolution, are computed directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from polyhal.backends.common.convolutions import Geometry, Pair, geometry, refusal
from polyhal.backends.common.geometry import ceil_div
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.products import Matrix, Product
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering import movement
from polyhal.backends.opencl.lowering.matmul_panels import RegisterTile, multiply_panels, partial_bytes, register_tile
from polyhal.backends.opencl.lowering.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, Spec, contiguous
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]
Step = Callable[..., None]

_FEW = 4
"""Filters per group up to which the direct kernels are used."""
_PACKED_BYTES = 64 << 20
"""Windows are unrolled for about so many bytes at a time."""
_PACK_ROWS = 32
_PACKED = Matrix(-1, 0, 0, (0, 0, 0))
"""A right operand that lies in workspace, in panels."""


def _parameters(g: Geometry) -> list[Parameter]:
    """GEOMETRY of conv_direct.cl."""
    counts = (g.images, g.groups, g.channels, g.filters)
    lengths = (*g.size, *g.result, *g.kernel)
    return [
        *(Constant(v, "uint") for v in counts), *(Constant(v, "int") for v in lengths),
        *(Constant(v, "int") for v in (*g.stride, *g.padding, *g.dilation)),
    ]  # fmt: skip


def _steps(spec: Spec) -> list[Parameter]:
    return [Constant(v, "long") for v in spec.strides]


def _refusal(runtime: Runtime, g: Geometry, *specs: InputSpec | None) -> str:
    found = refusal(g, *specs)
    if not found and not runtime.features.cpu and g.filters > _FEW:
        return "on GPUs convolution is composed of windows and a matrix product"
    return found


def _window(
    g: Geometry,
    channels: int,
    size: Pair,
    across: int,
    pixels: int,
    stride: Pair,
    origin: Pair,
    dilation: Pair,
    source: Spec,
) -> list[Parameter]:
    """WINDOW of conv_pack.cl: windows of `source`, whose images have this size, for `pixels` pixels in rows of `across`."""
    return [
        Constant(channels, "uint"), Constant(g.groups, "uint"), Constant(size[0], "int"), Constant(size[1], "int"),
        Constant(across, "uint"), Constant(pixels, "uint"), Constant(g.kernel[0], "uint"), Constant(g.kernel[1], "uint"),
        *(Constant(v, "int") for v in (*stride, *origin, *dilation)), *_steps(source),
    ]  # fmt: skip


def _pack_definitions(dtype: DType, tile: RegisterTile, transposed: bool = False) -> dict[str, str | int | bool]:
    return {
        "DTYPE": dtype.name, "REAL": real_type(dtype), "NR": tile.columns, "ROWS": _PACK_ROWS, "TRANSPOSED": transposed
    }  # fmt: skip


def _chunks(images: int, bytes_per_image: int) -> list[tuple[int, int]]:
    """The first image and the number of images of every pass."""
    each = max(1, min(images, _PACKED_BYTES // bytes_per_image))
    return [(first, min(each, images - first)) for first in range(0, images, each)]


def _item(real: str) -> int:
    return 8 if real == "double" else 4


def _product(
    g: Geometry, images: int, m: int, n: int, k: int, dtype: DType, out: DType, places: tuple[int, int | None, int, int]
) -> Product:
    """For each image and group, a contiguous (m, k) matrix per group times packed (k, n)."""
    left, bias, result, temporary = places
    matrix, target = Matrix(left, k, 1, (0, 0, m * k)), Matrix(result, n, 1, (0, g.groups * m * n, m * n))
    return Product((1, images, g.groups), m, n, k, matrix, _PACKED, target, dtype, out, bias, temporary)


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, weight, bias = inputs
    (out,) = outputs
    if not isinstance(x, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    g = geometry(x.shape, weight.shape, out.shape, params)
    reason = _refusal(runtime, g, x, weight, *([bias] if bias is not None else []))
    if reason or not weight.is_contiguous or (isinstance(bias, Spec) and not bias.is_contiguous):
        return Declined(reason or "the weight or bias is not contiguous")
    bias_place = None if bias is None else 2
    if g.filters <= _FEW:
        definitions: dict[str, str | int | bool] = {
            "DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name, "REAL": real_type(out.dtype), "BIAS": bias is not None
        }  # fmt: skip
        tensors = [Tensor(0), Tensor(1), *([Tensor(2)] if bias is not None else []), Tensor(3)]
        items = (g.pixels, g.groups * g.filters, g.images)
        group = (runtime.features.group_size, 1, 1)
        parameters = [*tensors, *_parameters(g), *_steps(x)]
        return runtime.launch("conv_direct", "conv_direct", definitions, parameters, items, group)
    real = real_type(out.dtype)
    tile = register_tile(runtime, _item(real), g.filters)
    per_image = g.groups * ceil_div(g.pixels, tile.columns) * tile.columns * g.taps * _item(real)
    origin = (-g.padding[0], -g.padding[1])
    steps: list[Step] = []
    chunks = _chunks(g.images, per_image)
    for first, count in chunks:
        steps.append(
            runtime.launch(
                "conv_pack", "conv_pack", _pack_definitions(x.dtype, tile),
                [
                    Tensor(0), Workspace(4), Constant(first, "uint"),
                    *_window(g, g.channels, g.size, g.result[1], g.pixels, g.stride, origin, g.dilation, x),
                ],
                (g.channels, ceil_div(g.pixels, tile.columns), count * g.groups), (1, 1, 1), kernel="pack_windows",
            )
        )  # fmt: skip
        p = _product(g, count, g.filters, g.pixels, g.taps, x.dtype, out.dtype, (1, bias_place, 3, 4))
        steps.append(
            multiply_panels(
                runtime, p, tile, (Tensor(1),), (0, g.groups, 1), bias_by_rows=True, first_batch=first * g.groups
            )
        )
    largest = _product(g, chunks[0][1], g.filters, g.pixels, g.taps, x.dtype, out.dtype, (1, bias_place, 3, 4))
    partial = partial_bytes(largest)
    return LaunchSequence("conv2d", steps, (per_image * chunks[0][1], *([partial] if partial else [])))


def _copy_step(runtime: Runtime, source: Spec, place: int, workspace: int) -> tuple[Step, int]:
    """A step that makes a view of argument `place` contiguous in a workspace, and the bytes that takes."""
    target = contiguous(source.dtype, source.shape)
    copy = movement.copy(runtime, source, target)

    def run(*args: Any) -> None:
        ref = args[place]
        copy(Ref(ref.handle, source, ref.offset), Ref(args[workspace], target, 0))

    return run, target.nbytes


def _input_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    slope, weight = inputs
    (out,) = outputs
    if not isinstance(slope, Spec) or not isinstance(weight, Spec):
        return Declined("an operand is a number")
    g = geometry(out.shape, weight.shape, slope.shape, params)
    reason = _refusal(runtime, g, slope, weight)
    if reason or not weight.is_contiguous:
        return Declined(reason or "the weight is not contiguous")
    real = real_type(out.dtype)
    inner = g.size[0] * g.size[1]
    if g.filters <= _FEW:
        definitions: dict[str, str | int | bool] = {
            "DTYPE": slope.dtype.name,
            "OUT_DTYPE": out.dtype.name,
            "REAL": real,
        }
        parameters = [Tensor(0), Tensor(1), Tensor(2), *_parameters(g), *_steps(slope)]
        items = (inner, g.groups * g.channels, g.images)
        return runtime.launch(
            "conv_direct_input_grad", "conv_direct", definitions, parameters, items, (runtime.features.group_size, 1, 1),
            kernel="conv_direct_input_grad",
        )  # fmt: skip
    taps = math.prod(g.kernel)
    # (group, channel, filter, tap): the rows of the product are the input's channels.
    turned = Spec(
        weight.dtype, (g.groups, g.channels, g.filters, taps), (g.filters * g.taps, taps, g.taps, 1), weight.aligned
    )
    copy, copied_bytes = _copy_step(runtime, turned, 1, 3)
    tile = register_tile(runtime, _item(real), g.channels)
    depth = g.filters * taps
    per_image = g.groups * ceil_div(inner, tile.columns) * tile.columns * depth * _item(real)
    transposed = g.stride != (1, 1)
    backwards = (-g.dilation[0], -g.dilation[1])
    steps: list[Step] = [copy]
    chunks = _chunks(g.images, per_image)
    for first, count in chunks:
        steps.append(
            runtime.launch(
                "conv_pack", "conv_pack", _pack_definitions(slope.dtype, tile, transposed),
                [
                    Tensor(0), Workspace(4), Constant(first, "uint"),
                    *_window(g, g.filters, g.result, g.size[1], inner, g.stride, g.padding, backwards, slope),
                ],
                (g.filters, ceil_div(inner, tile.columns), count * g.groups), (1, 1, 1), kernel="pack_windows",
            )
        )  # fmt: skip
        p = _product(g, count, g.channels, inner, depth, slope.dtype, out.dtype, (-1, None, 2, 4))
        left = (Workspace(3), Constant(0, "ulong"))
        steps.append(multiply_panels(runtime, p, tile, left, (0, g.groups, 1), first_batch=first * g.groups))
    partial = partial_bytes(
        _product(g, chunks[0][1], g.channels, inner, depth, slope.dtype, out.dtype, (-1, None, 2, 4))
    )
    workspace = (copied_bytes, per_image * chunks[0][1], *([partial] if partial else []))
    return LaunchSequence("conv2d_input_grad", steps, workspace)


def _weight_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    slope, x = inputs
    (out,) = outputs
    if not isinstance(slope, Spec) or not isinstance(x, Spec):
        return Declined("an operand is a number")
    g = geometry(x.shape, out.shape, slope.shape, params)
    reason = _refusal(runtime, g, slope, x)
    if reason:
        return Declined(reason)
    real = real_type(out.dtype)
    if g.filters <= _FEW:
        definitions: dict[str, str | int | bool] = {"DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name, "REAL": real}
        parameters = [Tensor(0), Tensor(1), Tensor(2), *_parameters(g), *_steps(slope), *_steps(x)]
        group = 1 if runtime.features.cpu else 32
        return runtime.launch(
            "conv_direct_weight_grad", "conv_direct", definitions, parameters, (out.size,), (group,),
            kernel="conv_direct_weight_grad",
        )  # fmt: skip
    # (group, filter, image, pixel): the terms of the product are the pixels of all images.
    s = slope.strides
    view = Spec(
        slope.dtype,
        (g.groups, g.filters, g.images, *g.result),
        (s[1] * g.filters, s[1], s[0], s[2], s[3]),
        slope.aligned,
    )
    copy, copied_bytes = _copy_step(runtime, view, 0, 3)
    tile = register_tile(runtime, _item(real), g.filters)
    per_image = g.groups * ceil_div(g.taps, tile.columns) * tile.columns * g.pixels * _item(real)
    origin = (-g.padding[0], -g.padding[1])
    terms = g.images * g.pixels
    # Between passes the sums wait in the result, which half precision would round.
    chunks = _chunks(g.images, per_image if out.dtype.itemsize >= 4 else 1)
    steps: list[Step] = [copy]
    partial = 0
    for first, count in chunks:
        chunk_items = (count * ceil_div(g.pixels, _PACK_ROWS), ceil_div(g.taps, tile.columns), g.groups)
        steps.append(
            runtime.launch(
                "conv_pack", "conv_pack", _pack_definitions(x.dtype, tile),
                [
                    Tensor(1), Workspace(4), Constant(first, "uint"), Constant(count, "uint"),
                    *_window(g, g.channels, g.size, g.result[1], g.pixels, g.stride, origin, g.dilation, x),
                ],
                chunk_items, (1, 1, 1), kernel="pack_taps",
            )
        )  # fmt: skip
        matrix = Matrix(-1, terms, 1, (0, 0, g.filters * terms))
        target = Matrix(2, g.taps, 1, (0, 0, g.filters * g.taps))
        p = Product(
            (1, 1, g.groups), g.filters, g.taps, count * g.pixels, matrix, _PACKED, target, slope.dtype, out.dtype, None, 4
        )  # fmt: skip
        partial = max(partial, partial_bytes(p))
        left = (Workspace(3), Constant(first * g.pixels, "ulong"))
        steps.append(multiply_panels(runtime, p, tile, left, (0, 0, 1), accumulate=first > 0))
    workspace = (copied_bytes, per_image * chunks[0][1], *([partial] if partial else []))
    return LaunchSequence("conv2d_weight_grad", steps, workspace)


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    "conv2d": _forward,
    "conv2d_input_grad": _input_grad,
    "conv2d_weight_grad": _weight_grad,
}
