"""Batch norm with the statistics of the batch, alone or with relu after it, and the gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems import batch_norm
from polyhal.backends.common.problems.batch_norm import ChannelPlanes
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.support.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

_SHORT_PLANE = 1024
_SHORT_GROUP = 32
_CPU_GROUPS, _GPU_GROUPS = 4, 16
"""Groups per compute unit that gather statistics."""
_LEAST_ELEMENTS = 4096
"""Elements that are worth a group."""
_MOST_ELEMENTS = 32768
"""Elements that a work-item takes of channels that it takes together: they stay in the second-level cache for another pass."""
_MOST_TOGETHER = 16


def _definitions(
    runtime: Runtime, x: Spec, inner: int, weight: InputSpec | None, bias: InputSpec | None
) -> dict[str, str | int | bool]:
    real = real_type(x.dtype)
    width = max(1, runtime.features.vector_width // (2 if real == "double" else 1))
    while width > 1 and width > inner:
        width //= 2
    definitions: dict[str, str | int | bool] = {
        "DTYPE": x.dtype.name, "REAL": real, "WIDTH": width, "WEIGHT": weight is not None, "BIAS": bias is not None
    }  # fmt: skip
    if weight is not None:
        definitions["WEIGHT_DTYPE"] = weight.dtype.name
    if bias is not None:
        definitions["BIAS_DTYPE"] = bias.dtype.name
    return definitions


def _together(runtime: Runtime, planes: ChannelPlanes) -> int:
    """Channels that one work-item takes together: of short planes enough to read memory in long runs."""
    if not runtime.features.cpu or planes.inner > _SHORT_PLANE:
        return 1
    return math.gcd(planes.channels, _MOST_TOGETHER)


def _groups(runtime: Runtime, inner: int) -> tuple[int, int]:
    """Group sizes for the statistics and for applying them."""
    if runtime.features.cpu:
        return 1, 1
    return runtime.features.group_size, _SHORT_GROUP if inner <= _SHORT_PLANE else runtime.features.group_size


def _images_each(runtime: Runtime, planes: ChannelPlanes, together: int) -> int:
    """Images that one group takes of its channels, so that there are groups enough."""
    wanted = (_CPU_GROUPS if runtime.features.cpu else _GPU_GROUPS) * runtime.features.compute_units
    least = ceil_div(_LEAST_ELEMENTS, planes.inner * together)
    each = max(ceil_div(planes.images, ceil_div(wanted * together, planes.channels)), min(least, planes.images))
    return each if together == 1 else max(1, min(each, _MOST_ELEMENTS // (planes.inner * together)))


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any], *, relu: bool = False
) -> Launch | Declined:
    found = batch_norm.forward(inputs)
    if isinstance(found, Declined):
        return found
    together = _together(runtime, found)
    definitions = _definitions(runtime, outputs[0], found.inner, *inputs[1:]) | {"TOGETHER": together}
    gathering, applying = _groups(runtime, found.inner)
    layout = _layout(found, *found.steps)
    each = _images_each(runtime, found, together)
    shared = each if runtime.features.cpu else 1
    parts = ceil_div(found.images, each)
    channels = found.channels // together
    results: list[Parameter] = [Workspace(6)] if parts > 1 else [Tensor(4), Tensor(5)]
    launches = [runtime.launch(
        "batch_statistics", "rowwise/batch_norm", definitions | {"GROUP": gathering, "PARTIAL": parts > 1},
        [Tensor(0), *results, *layout, Constant(each, "uint")],
        (channels * gathering, parts), (gathering, 1), kernel="batch_statistics",
    )]  # fmt: skip
    if parts > 1:
        launches.append(runtime.launch(
            "batch_join_statistics", "rowwise/batch_norm", definitions | {"GROUP": gathering, "PARTIAL": True},
            [Workspace(6), Tensor(4), Tensor(5), *layout[:3], Constant(each, "uint"), Constant(parts, "uint")],
            (found.channels,), (_join_group(runtime),), kernel="batch_join_statistics",
        ))  # fmt: skip
    present = [i for i, s in enumerate(inputs) if s is not None]
    launches.append(runtime.launch(
        "batch_apply", "rowwise/batch_norm", definitions | {"GROUP": applying, "RELU": relu},
        [
            *(Tensor(i) for i in present), Tensor(3), Tensor(4), Tensor(5), _eps(definitions, params), *layout,
            Constant(shared, "uint"),
        ],
        (channels * applying, ceil_div(found.images, shared)), (applying, 1), kernel="batch_apply",
    ))  # fmt: skip
    workspace = (2 * parts * found.channels * _item(definitions),) if parts > 1 else ()
    return LaunchSequence("batch_norm", launches, workspace)


def _join_group(runtime: Runtime) -> int:
    """Channels whose parts one group joins."""
    return 16 if runtime.features.cpu else 64


def _item(definitions: Mapping[str, Any]) -> int:
    return 8 if definitions["REAL"] == "double" else 4


def _layout(planes: ChannelPlanes, *steps: int) -> list[Parameter]:
    sizes = (planes.images, planes.channels, planes.inner)
    return [*(Constant(n, "uint") for n in sizes), *(Constant(n, "long") for n in steps)]


def _eps(definitions: Mapping[str, Any], params: Mapping[str, Any]) -> Constant:
    return Constant(params["eps"], "double" if definitions["REAL"] == "double" else "float")


def _backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any], *, relu: bool = False
) -> Launch | Declined:
    found = batch_norm.backward(inputs, relu=relu)
    if isinstance(found, Declined):
        return found
    g, x = found
    together = _together(runtime, x)
    bias = inputs[3] if relu else None
    definitions = _definitions(runtime, outputs[0], x.inner, inputs[2], bias)
    definitions |= {"GRADIENT_DTYPE": outputs[1].dtype.name, "TOGETHER": together, "RELU": relu}
    gathering, applying = _groups(runtime, x.inner)
    eps = _eps(definitions, params)
    layout = _layout(x, *g.steps, *x.steps)
    each = _images_each(runtime, x, together)
    shared = each if runtime.features.cpu else 1
    parts = ceil_div(x.images, each)
    channels, first = x.channels // together, len(inputs)
    operands = [Tensor(i) for i, s in enumerate(inputs) if s is not None]
    mean, variance = Tensor(first - 2), Tensor(first - 1)
    dx, dweight, dbias = (Tensor(first + i) for i in range(3))
    shares, totals = Workspace(first + 3), Workspace(first + 4)
    sums = runtime.launch(
        "batch_sums", "rowwise/batch_norm", definitions | {"GROUP": gathering},
        [*([*operands, eps] if relu else [Tensor(0), Tensor(1), mean]), shares, *layout, Constant(each, "uint")],
        (channels * gathering, parts), (gathering, 1), kernel="batch_sums",
    )  # fmt: skip
    join = runtime.launch(
        "batch_join_sums", "rowwise/batch_norm", definitions | {"GROUP": gathering},
        [shares, variance, dweight, dbias, totals, eps, layout[1], Constant(parts, "uint")],
        (x.channels,), (_join_group(runtime),), kernel="batch_join_sums",
    )  # fmt: skip
    apply = runtime.launch(
        "batch_input_grad", "rowwise/batch_norm", definitions | {"GROUP": applying},
        [*operands, dx, totals, eps, *layout, Constant(shared, "uint")],
        (channels * applying, ceil_div(x.images, shared)), (applying, 1), kernel="batch_input_grad",
    )  # fmt: skip
    size = 2 * x.channels * _item(definitions)
    return LaunchSequence("batch_norm_grad", (sums, join, apply), (parts * size, size))


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    "batch_norm": _forward,
    "batch_norm_grad": _backward,
    "batch_norm_relu": partial(_forward, relu=True),
    "batch_norm_relu_grad": partial(_backward, relu=True),
}
