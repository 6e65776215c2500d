"""Group norm and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import batch_norm
from polyhal.backends.common.problems.batch_norm import ChannelPlanes
from polyhal.backends.common.problems.norm import Inputs, parameter_refusal
from polyhal.backends.opencl_c.lowering.rowwise.arguments import Args, itemsize, optional, tensors
from polyhal.backends.opencl_c.lowering.support.rows import RowKernel, row_kernel
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_GAPS = Declined("the channels of an image are not contiguous")
_TOTAL_GROUP = 64


def _dense(planes: ChannelPlanes) -> bool:
    """Return whether the channels of an image are contiguous."""
    return planes.steps[1] == planes.inner or planes.channels == 1


def _forward(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
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
    kernel = row_kernel(runtime, (flat, contiguous(x.dtype, shape)), 2, cached=1, boundary=planes.inner)
    if isinstance(kernel, Declined):
        return kernel
    definitions = kernel.definitions | {"CENTRED": True, "CHANNELS": True}
    definitions |= optional("WEIGHT", weight) | optional("BIAS", bias)
    operands = zip(("x", "weight", "bias", "out", "means", "scales"), (*inputs, *outputs), strict=True)
    args: Args = {
        **tensors(dict(operands)),
        "eps": params["eps"],
        "groups": groups,
        "inner": planes.inner,
        **kernel.args("x", "out"),
    }
    return runtime.launch("rowwise/norm", definitions, args, kernel.items, kernel.group)


def _backward(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    refusal = parameter_refusal(*inputs[2:])
    if refusal:
        return Declined(refusal)
    planes = batch_norm.backward(inputs)
    if isinstance(planes, Declined):
        return planes
    g, x = planes
    if not _dense(g) or not _dense(x):
        return _GAPS
    kernel = row_kernel(runtime, (contiguous(outputs[0].dtype, (x.images * x.channels, x.inner)),), 1)
    if isinstance(kernel, Declined):
        return kernel
    definitions = kernel.definitions | optional("WEIGHT", inputs[2])
    definitions |= {"ALIGNED": _aligned(kernel, inputs, planes), "GRADIENT_DTYPE": outputs[1].dtype.name}
    geometry: Args = {
        "images": x.images,
        "channels": x.channels,
        "groups": params["groups"],
        "length": x.inner,
        "g_image": g.steps[0],
        "x_image": x.steps[0],
    }
    names = ("g", "x", "weight", "means", "scales", "dx", "dweight", "dbias")
    memory = tensors(dict(zip(names, (*inputs, *outputs), strict=True))) | {"sums": Workspace(len(names))}

    def launch(function: str, operands: tuple[str, ...], numbers: Args, items: int, group: tuple[int, ...]) -> Launch:
        args = {name: memory[name] for name in operands if name in memory} | numbers
        return runtime.launch("rowwise/group_norm_grad", definitions, args, (items,), group, kernel=function)

    items, shape = x.images * x.channels * kernel.group[0], {"images": x.images, "channels": x.channels}
    sums = launch("plane_sums", ("g", "x", "means", "scales", "sums"), geometry, items, kernel.group)
    apply = launch(
        "plane_input_grad", ("g", "x", "weight", "means", "scales", "dx", "sums"), geometry, items, kernel.group
    )
    group = (min(runtime.features.group_size, _TOTAL_GROUP),)
    totals = launch("channel_totals", ("sums", "dweight", "dbias"), {**shape}, x.channels, group)
    nbytes = 2 * x.images * x.channels * itemsize(kernel.real)
    return LaunchSequence((sums, apply, totals), (nbytes,))


def _aligned(kernel: RowKernel, inputs: Inputs, planes: tuple[ChannelPlanes, ChannelPlanes]) -> bool:
    """Return whether the vectors of all planes are aligned, given that vectors of contiguous planes may be."""
    width = kernel.definitions["WIDTH"]
    assert isinstance(width, int)
    aligned = all(isinstance(s, Spec) and s.aligned for s in inputs[:2])
    return bool(kernel.definitions["ALIGNED"]) and aligned and all(p.steps[0] % width == 0 for p in planes)


LOWERINGS: dict[str, LoweringFunction] = {"group_norm": _forward, "group_norm_grad": _backward}
