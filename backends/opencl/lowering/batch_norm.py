"""Batch norm with the statistics of the batch, and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyhal.backends.common.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.rows import real_type
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec, collapse
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]
Shape = tuple[int, int, int]

_SHORT_PLANE = 1024
_SHORT_GROUP = 32


def _shape(spec: Spec) -> tuple[Shape, tuple[int, int]] | None:
    """(images, channels, inner) with the strides of the first two, or None where the inner axes are not contiguous."""
    lengths, (steps,) = collapse(spec.shape[2:], (spec.strides[2:],))
    if len(lengths) > 1 or (lengths[0] > 1 and steps[0] != 1):
        return None
    return (spec.shape[0], spec.shape[1], lengths[0]), (spec.strides[0], spec.strides[1])


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


def _refusal(x: InputSpec | None, *small: InputSpec | None) -> str:
    if not isinstance(x, Spec):
        return "x is a number"
    if any(s is not None and not (isinstance(s, Spec) and s.is_contiguous) for s in small):
        return "a weight, bias or statistic is not contiguous"
    return ""


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, weight, bias = inputs
    refusal = _refusal(x, weight, bias)
    if refusal:
        return Declined(refusal)
    assert isinstance(x, Spec)
    found = _shape(x)
    if found is None:
        return Declined("the axes after the channels are not contiguous")
    (images, channels, inner), steps = found
    definitions = _definitions(runtime, x, inner, weight, bias)
    gathering, applying = _groups(runtime, inner)
    layout: list[Parameter] = [
        Constant(images, "uint"), Constant(channels, "uint"), Constant(inner, "uint"), *(Constant(v, "long") for v in steps)
    ]  # fmt: skip
    statistics = runtime.launch(
        "batch_statistics", "batch_norm", definitions | {"GROUP": gathering}, [Tensor(0), Tensor(4), Tensor(5), *layout],
        (channels * gathering,), (gathering,), kernel="batch_statistics",
    )  # fmt: skip
    present = [i for i, s in enumerate(inputs) if s is not None]
    apply = runtime.launch(
        "batch_apply", "batch_norm", definitions | {"GROUP": applying},
        [*(Tensor(i) for i in present), Tensor(3), Tensor(4), Tensor(5), _eps(definitions, params), *layout],
        (channels * applying, images), (applying, 1), kernel="batch_apply",
    )  # fmt: skip
    return LaunchSequence("batch_norm", (statistics, apply))


def _eps(definitions: Mapping[str, Any], params: Mapping[str, Any]) -> Constant:
    return Constant(params["eps"], "double" if definitions["REAL"] == "double" else "float")


def _backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    g, x, weight, mean, variance = inputs
    refusal = _refusal(x, weight, mean, variance)
    if refusal:
        return Declined(refusal)
    assert isinstance(x, Spec)
    if not isinstance(g, Spec) or g.dtype is not x.dtype:
        return Declined("operands of different dtypes")
    wanted = "float64" if real_type(x.dtype) == "double" else "float32"
    if any(s is None or s.dtype.name != wanted for s in (mean, variance)):
        return Declined("statistics of an unexpected dtype")
    x_found, g_found = _shape(x), _shape(g)
    if x_found is None or g_found is None:
        return Declined("the axes after the channels are not contiguous")
    (images, channels, inner), x_steps = x_found
    definitions = _definitions(runtime, x, inner, weight, None) | {"GRADIENT_DTYPE": outputs[1].dtype.name}
    gathering, applying = _groups(runtime, inner)
    eps = _eps(definitions, params)
    layout: list[Parameter] = [
        Constant(images, "uint"), Constant(channels, "uint"), Constant(inner, "uint"),
        *(Constant(v, "long") for v in (*g_found[1], *x_steps)),
    ]  # fmt: skip
    sums = runtime.launch(
        "batch_sums", "batch_norm", definitions | {"GROUP": gathering},
        [*(Tensor(i) for i in (0, 1, 3, 4, 6, 7)), Workspace(8), eps, *layout],
        (channels * gathering,), (gathering,), kernel="batch_sums",
    )  # fmt: skip
    present = [i for i, s in enumerate(inputs) if s is not None]
    apply = runtime.launch(
        "batch_input_grad", "batch_norm", definitions | {"GROUP": applying},
        [*(Tensor(i) for i in present), Tensor(5), Workspace(8), eps, *layout],
        (channels * applying, images), (applying, 1), kernel="batch_input_grad",
    )  # fmt: skip
    item = 8 if definitions["REAL"] == "double" else 4
    return LaunchSequence("batch_norm_grad", (sums, apply), (2 * channels * item,))


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {"batch_norm": _forward, "batch_norm_grad": _backward}
