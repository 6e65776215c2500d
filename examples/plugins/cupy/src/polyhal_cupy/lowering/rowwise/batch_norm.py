"""Batch norm with the statistics of the batch, and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Argument, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import batch_norm
from polyhal.backends.common.problems.batch_norm import ChannelPlanes
from polyhal.backends.common.problems.norm import Inputs
from polyhal.hal.dtypes import accumulator
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch
from polyhal_cupy.lowering.rowwise.norm import dtype_name
from polyhal_cupy.lowering.support import rows
from polyhal_cupy.lowering.support.arguments import present
from polyhal_cupy.runtime import Runtime

_GROUP = 512


def _definitions(x: Spec, weight: InputSpec | None, bias: InputSpec | None) -> dict[str, str | int | bool]:
    return {
        "DTYPE": x.dtype.name, "REAL": rows.real_type(x.dtype), "WEIGHT": weight is not None, "BIAS": bias is not None,
        "WEIGHT_DTYPE": dtype_name(weight), "BIAS_DTYPE": dtype_name(bias), "GROUP": _GROUP,
    }  # fmt: skip


def _layout(planes: ChannelPlanes, **steps: tuple[int, int]) -> dict[str, Argument]:
    """Return SHAPE and the STEPS of each operand."""
    args: dict[str, Argument] = {"images": planes.images, "channels": planes.channels, "inner": planes.inner}
    for name, (image, channel) in steps.items():
        args |= {f"{name}_image": image, f"{name}_channel": channel}
    return args


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    planes = batch_norm.forward(inputs)
    if isinstance(planes, Declined):
        return planes
    x, weight, bias = inputs
    assert isinstance(x, Spec)
    definitions = _definitions(x, weight, bias)
    layout = _layout(planes, x=planes.steps)
    statistics = runtime.launch(
        "batch_norm.statistics", "rowwise/batch_norm", definitions,
        {"x": Tensor(0), "means": Tensor(4), "variances": Tensor(5), **layout}, planes.channels, _GROUP,
        kernel="batch_statistics",
    )  # fmt: skip
    args: dict[str, Argument] = {
        **present(("x", "weight", "bias"), inputs), "out": Tensor(3), "means": Tensor(4), "variances": Tensor(5),
        "eps": params["eps"], **layout,
    }  # fmt: skip
    apply = runtime.launch(
        "batch_norm.apply",
        "rowwise/batch_norm",
        definitions,
        args,
        ceil_div(x.size, _GROUP),
        _GROUP,
        kernel="batch_apply",
    )
    return LaunchSequence((statistics, apply))


def _backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = batch_norm.backward(inputs)
    if isinstance(found, Declined):
        return found
    g_planes, planes = found
    x, weight = inputs[1], inputs[2]
    assert isinstance(x, Spec)
    definitions = _definitions(x, weight, None) | {"GRADIENT_DTYPE": outputs[1].dtype.name}
    layout = {"eps": params["eps"], **_layout(planes, g=g_planes.steps, x=planes.steps)}
    sums = runtime.launch(
        "batch_norm_grad.sums", "rowwise/batch_norm", definitions,
        {
            "g": Tensor(0), "x": Tensor(1), "means": Tensor(3), "variances": Tensor(4), "dweight": Tensor(6),
            "dbias": Tensor(7), "sums": Workspace(8), **layout,
        },
        planes.channels, _GROUP,
        kernel="batch_sums",
    )  # fmt: skip
    apply = runtime.launch(
        "batch_norm_grad.input", "rowwise/batch_norm", definitions,
        {
            **present(("g", "x", "weight", "means", "variances"), inputs), "dx": Tensor(5), "sums": Workspace(8), **layout,
        },
        ceil_div(x.size, _GROUP),
        _GROUP, kernel="batch_input_grad",
    )  # fmt: skip
    return LaunchSequence((sums, apply), (2 * planes.channels * accumulator(x.dtype).itemsize,))


LOWERINGS: dict[str, LoweringFunction] = {"batch_norm": _forward, "batch_norm_grad": _backward}
