"""Group norm and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.problems import batch_norm
from polyhal.backends.common.problems.batch_norm import ChannelPlanes
from polyhal.backends.common.problems.norm import Inputs, parameter_refusal
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.support import rows
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.protocol import Declined, Launch

_GAPS = Declined("the channels of an image are not contiguous")


def _inner(x: Spec) -> int:
    """Elements of a channel of one image."""
    return math.prod(x.shape[2:])


def _dense(planes: ChannelPlanes) -> bool:
    """Whether the channels of an image follow one another."""
    return planes.steps[1] == planes.inner or planes.channels == 1


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    x, weight, bias = inputs
    planes = batch_norm.forward(inputs)
    if isinstance(planes, Declined):
        return planes
    if not isinstance(x, Spec) or not _dense(planes):
        return _GAPS
    groups = params["groups"]
    length = planes.channels // groups * planes.inner
    shape = (planes.images, groups, length)
    flat = Spec(x.dtype, shape, (planes.steps[0], length, 1), x.aligned)
    arranged = rows.arrange(runtime, (flat, contiguous(x.dtype, shape)), 2, held=1, unit=planes.inner)
    if isinstance(arranged, Declined):
        return arranged
    definitions = arranged.definitions | {
        "CENTRED": True, "CHANNELS": True, "WEIGHT": weight is not None, "BIAS": bias is not None,
        "WEIGHT_DTYPE": weight.dtype.name if weight is not None else "DTYPE",
        "BIAS_DTYPE": bias.dtype.name if bias is not None else "DTYPE",
    }  # fmt: skip
    eps = Constant(params["eps"], "double" if definitions["REAL"] == "double" else "float")
    tensors = [Tensor(i) for i, s in enumerate((*inputs, *outputs)) if s is not None]
    numbers = [eps, Constant(groups, "uint"), Constant(planes.inner, "uint")]
    parameters = [*tensors, *numbers, *arranged.parameters]
    return runtime.launch("group_norm", "rowwise/norm", definitions, parameters, arranged.items, arranged.group)


def _backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    weight = inputs[2]
    refusal = parameter_refusal(*inputs[2:])
    if refusal:
        return Declined(refusal)
    found = batch_norm.backward(inputs)
    if isinstance(found, Declined):
        return found
    g, x = found
    if not _dense(g) or not _dense(x):
        return _GAPS
    flat = contiguous(outputs[0].dtype, (x.images * x.channels, x.inner))
    arranged = rows.arrange(runtime, (flat,), 1)
    if isinstance(arranged, Declined):
        return arranged
    aligned = all(isinstance(s, Spec) and s.aligned for s in inputs[:2])
    definitions = arranged.definitions | {
        "ALIGNED": False, "WEIGHT": weight is not None, "GRADIENT_DTYPE": outputs[1].dtype.name,
        "WEIGHT_DTYPE": weight.dtype.name if weight is not None else "DTYPE",
    }  # fmt: skip
    width = arranged.definitions["WIDTH"]
    assert isinstance(width, int)
    if arranged.definitions["ALIGNED"] and aligned and all(p.steps[0] % width == 0 for p in found):
        definitions["ALIGNED"] = True
    shape = [Constant(n, "uint") for n in (x.images, x.channels, params["groups"], x.inner)]
    steps = [Constant(p.steps[0], "long") for p in found]
    group = arranged.group
    items = (x.images * x.channels * group[0],)

    def launch(kernel: str, parameters: list[Parameter], items: tuple[int, ...], group: tuple[int, ...]) -> Launch:
        return runtime.launch(kernel, "rowwise/group_norm_grad", definitions, parameters, items, group, kernel=kernel)

    sums = launch(
        "plane_sums", [*(Tensor(i) for i in (0, 1, 3, 4)), Workspace(8), *shape, *steps], items, group
    )  # fmt: skip
    present = [Tensor(i) for i in range(5) if inputs[i] is not None]
    apply = launch("plane_input_grad", [*present, Tensor(5), Workspace(8), *shape, *steps], items, group)
    totals = launch(
        "channel_totals", [Workspace(8), Tensor(6), Tensor(7), *shape[:2]], (x.channels,),
        (min(runtime.features.group_size, 64),),
    )  # fmt: skip
    item = 8 if definitions["REAL"] == "double" else 4
    return LaunchSequence("group_norm_grad", (sums, apply, totals), (2 * x.images * x.channels * item,))


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {"group_norm": _forward, "group_norm_grad": _backward}
