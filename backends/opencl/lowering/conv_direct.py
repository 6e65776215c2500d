"""Convolution straight from memory on GPUs: groups of few filters, as in depthwise convolution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.convolutions import Geometry
from polyhal.backends.common.launch import Constant, Tensor
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]
_GROUP = 32
"""Work-items that sum up for neighbouring weights."""


def forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], g: Geometry, params: Mapping[str, Any]
) -> Launch | Declined:
    x, weight, bias = inputs
    (out,) = outputs
    assert isinstance(x, Spec)
    assert isinstance(weight, Spec)
    if not weight.is_contiguous:
        return Declined("the weight is not contiguous")
    tensors = [Tensor(0), Tensor(1), *([Tensor(2)] if bias is not None else []), Tensor(3)]
    items = (g.pixels, g.groups * g.filters, g.images)
    return runtime.launch(
        "conv_direct", "conv_direct", _definitions(x.dtype, out.dtype) | {"BIAS": bias is not None},
        [*tensors, *_geometry(g), *_steps(x)], items, (runtime.features.group_size, 1, 1),
    )  # fmt: skip


def input_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], g: Geometry, params: Mapping[str, Any]
) -> Launch | Declined:
    slope, weight = inputs
    (out,) = outputs
    assert isinstance(slope, Spec)
    assert isinstance(weight, Spec)
    if not weight.is_contiguous:
        return Declined("the weight is not contiguous")
    items = (math.prod(g.size), g.groups * g.channels, g.images)
    return runtime.launch(
        "conv_direct_input_grad", "conv_direct", _definitions(slope.dtype, out.dtype),
        [Tensor(0), Tensor(1), Tensor(2), *_geometry(g), *_steps(slope)], items, (runtime.features.group_size, 1, 1),
        kernel="conv_direct_input_grad",
    )  # fmt: skip


def weight_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], g: Geometry, params: Mapping[str, Any]
) -> Launch | Declined:
    slope, x = inputs
    (out,) = outputs
    assert isinstance(slope, Spec)
    assert isinstance(x, Spec)
    return runtime.launch(
        "conv_direct_weight_grad", "conv_direct", _definitions(x.dtype, out.dtype),
        [Tensor(0), Tensor(1), Tensor(2), *_geometry(g), *_steps(slope), *_steps(x)], (out.size,), (_GROUP,),
        kernel="conv_direct_weight_grad",
    )  # fmt: skip


def _definitions(dtype: DType, out: DType) -> dict[str, str | int | bool]:
    return {"DTYPE": dtype.name, "OUT_DTYPE": out.name, "REAL": real_type(out)}


def _geometry(g: Geometry) -> list[Parameter]:
    """GEOMETRY of conv_direct.cl."""
    counts = (g.images, g.groups, g.channels, g.filters)
    lengths = (*g.size, *g.result, *g.kernel)
    return [
        *(Constant(v, "uint") for v in counts), *(Constant(v, "int") for v in lengths),
        *(Constant(v, "int") for v in (*g.stride, *g.padding, *g.dilation)),
    ]  # fmt: skip


def _steps(spec: Spec) -> list[Parameter]:
    return [Constant(v, "long") for v in spec.strides]
