"""Batch norm with the statistics of the batch, and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyhal.backends.common import batch_norms
from polyhal.backends.common.batch_norms import Planes
from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.norms import Inputs
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

_SHORT_PLANE = 1024
_SHORT_GROUP = 32


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


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = batch_norms.forward(inputs)
    if isinstance(found, Declined):
        return found
    definitions = _definitions(runtime, outputs[0], found.inner, *inputs[1:])
    gathering, applying = _groups(runtime, found.inner)
    layout = _layout(found, *found.steps)
    statistics = runtime.launch(
        "batch_statistics", "batch_norm", definitions | {"GROUP": gathering}, [Tensor(0), Tensor(4), Tensor(5), *layout],
        (found.channels * gathering,), (gathering,), kernel="batch_statistics",
    )  # fmt: skip
    present = [i for i, s in enumerate(inputs) if s is not None]
    apply = runtime.launch(
        "batch_apply", "batch_norm", definitions | {"GROUP": applying},
        [*(Tensor(i) for i in present), Tensor(3), Tensor(4), Tensor(5), _eps(definitions, params), *layout],
        (found.channels * applying, found.images), (applying, 1), kernel="batch_apply",
    )  # fmt: skip
    return LaunchSequence("batch_norm", (statistics, apply))


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
    sums = runtime.launch(
        "batch_sums", "batch_norm", definitions | {"GROUP": gathering},
        [*(Tensor(i) for i in (0, 1, 3, 4, 6, 7)), Workspace(8), eps, *layout],
        (x.channels * gathering,), (gathering,), kernel="batch_sums",
    )  # fmt: skip
    present = [i for i, s in enumerate(inputs) if s is not None]
    apply = runtime.launch(
        "batch_input_grad", "batch_norm", definitions | {"GROUP": applying},
        [*(Tensor(i) for i in present), Tensor(5), Workspace(8), eps, *layout],
        (x.channels * applying, x.images), (applying, 1), kernel="batch_input_grad",
    )  # fmt: skip
    item = 8 if definitions["REAL"] == "double" else 4
    return LaunchSequence("batch_norm_grad", (sums, apply), (2 * x.channels * item,))


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {"batch_norm": _forward, "batch_norm_grad": _backward}
