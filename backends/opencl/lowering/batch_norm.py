"""Batch norm with the statistics of the batch, and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyhal.backends.common import batch_norms
from polyhal.backends.common.batch_norms import Planes
from polyhal.backends.common.geometry import ceil_div
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.norms import Inputs
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

_SHORT_PLANE = 1024
_SHORT_GROUP = 32
_CPU_GROUPS, _GPU_GROUPS = 4, 16
"""Groups per compute unit that gather statistics."""
_LEAST_ELEMENTS = 4096
"""Elements of a channel that are worth a group."""


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


def _groups(runtime: Runtime, inner: int) -> tuple[int, int]:
    """Group sizes for the statistics and for applying them."""
    if runtime.features.cpu:
        return 1, 1
    return runtime.features.group_size, _SHORT_GROUP if inner <= _SHORT_PLANE else runtime.features.group_size


def _images_each(runtime: Runtime, planes: Planes) -> int:
    """Images that one group takes of a channel, so that there are groups enough."""
    wanted = (_CPU_GROUPS if runtime.features.cpu else _GPU_GROUPS) * runtime.features.compute_units
    least = ceil_div(_LEAST_ELEMENTS, planes.inner)
    return max(ceil_div(planes.images, ceil_div(wanted, planes.channels)), min(least, planes.images))


def _images_applied(runtime: Runtime, planes: Planes) -> int:
    """Images that one group applies the statistics to: beginning a group costs a CPU as much as a short plane."""
    return _images_each(runtime, planes) if runtime.features.cpu else 1


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = batch_norms.forward(inputs)
    if isinstance(found, Declined):
        return found
    definitions = _definitions(runtime, outputs[0], found.inner, *inputs[1:])
    gathering, applying = _groups(runtime, found.inner)
    layout = _layout(found, *found.steps)
    each = _images_each(runtime, found)
    shared = _images_applied(runtime, found)
    parts = ceil_div(found.images, each)
    results: list[Parameter] = [Workspace(6)] if parts > 1 else [Tensor(4), Tensor(5)]
    launches = [runtime.launch(
        "batch_statistics", "batch_norm", definitions | {"GROUP": gathering, "PARTIAL": parts > 1},
        [Tensor(0), *results, *layout, Constant(each, "uint")],
        (found.channels * gathering, parts), (gathering, 1), kernel="batch_statistics",
    )]  # fmt: skip
    if parts > 1:
        launches.append(runtime.launch(
            "batch_join_statistics", "batch_norm", definitions | {"GROUP": gathering, "PARTIAL": True},
            [Workspace(6), Tensor(4), Tensor(5), *layout[:3], Constant(each, "uint"), Constant(parts, "uint")],
            (found.channels,), (_join_group(runtime),), kernel="batch_join_statistics",
        ))  # fmt: skip
    present = [i for i, s in enumerate(inputs) if s is not None]
    launches.append(runtime.launch(
        "batch_apply", "batch_norm", definitions | {"GROUP": applying},
        [
            *(Tensor(i) for i in present), Tensor(3), Tensor(4), Tensor(5), _eps(definitions, params), *layout,
            Constant(shared, "uint"),
        ],
        (found.channels * applying, ceil_div(found.images, shared)), (applying, 1), kernel="batch_apply",
    ))  # fmt: skip
    workspace = (2 * parts * found.channels * _item(definitions),) if parts > 1 else ()
    return LaunchSequence("batch_norm", launches, workspace)


def _join_group(runtime: Runtime) -> int:
    return 1 if runtime.features.cpu else 64


def _item(definitions: Mapping[str, Any]) -> int:
    return 8 if definitions["REAL"] == "double" else 4


def _layout(planes: Planes, *steps: int) -> list[Parameter]:
    sizes = (planes.images, planes.channels, planes.inner)
    return [*(Constant(n, "uint") for n in sizes), *(Constant(n, "long") for n in steps)]


def _eps(definitions: Mapping[str, Any], params: Mapping[str, Any]) -> Constant:
    return Constant(params["eps"], "double" if definitions["REAL"] == "double" else "float")


def _backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = batch_norms.backward(inputs)
    if isinstance(found, Declined):
        return found
    g, x = found
    definitions = _definitions(runtime, outputs[0], x.inner, inputs[2], None)
    definitions["GRADIENT_DTYPE"] = outputs[1].dtype.name
    gathering, applying = _groups(runtime, x.inner)
    eps = _eps(definitions, params)
    layout = _layout(x, *g.steps, *x.steps)
    each = _images_each(runtime, x)
    shared = _images_applied(runtime, x)
    parts = ceil_div(x.images, each)
    sums = runtime.launch(
        "batch_sums", "batch_norm", definitions | {"GROUP": gathering},
        [Tensor(0), Tensor(1), Tensor(3), Workspace(8), *layout, Constant(each, "uint")],
        (x.channels * gathering, parts), (gathering, 1), kernel="batch_sums",
    )  # fmt: skip
    join = runtime.launch(
        "batch_join_sums", "batch_norm", definitions | {"GROUP": gathering},
        [Workspace(8), Tensor(4), Tensor(6), Tensor(7), Workspace(9), eps, layout[1], Constant(parts, "uint")],
        (x.channels,), (_join_group(runtime),), kernel="batch_join_sums",
    )  # fmt: skip
    present = [i for i, s in enumerate(inputs) if s is not None]
    apply = runtime.launch(
        "batch_input_grad", "batch_norm", definitions | {"GROUP": applying},
        [*(Tensor(i) for i in present), Tensor(5), Workspace(9), eps, *layout, Constant(shared, "uint")],
        (x.channels * applying, ceil_div(x.images, shared)), (applying, 1), kernel="batch_input_grad",
    )  # fmt: skip
    size = 2 * x.channels * _item(definitions)
    return LaunchSequence("batch_norm_grad", (sums, join, apply), (parts * size, size))


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {"batch_norm": _forward, "batch_norm_grad": _backward}
