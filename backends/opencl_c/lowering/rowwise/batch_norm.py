"""Batch norm with batch statistics, with or without a fused relu or a fused sum and relu, and the gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, power_of_two_at_most
from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import batch_norm
from polyhal.backends.common.problems.batch_norm import ChannelPlanes
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.opencl_c.lowering.rowwise import batch_norm_rows
from polyhal.backends.opencl_c.lowering.rowwise.arguments import Args, Definitions, itemsize, optional, tensors
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.lowering.support.wave import filled
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_SHORT_PLANE = 1024
_SHORT_GROUP = 32
_PLANES_GROUP = 128
"""Work-items per group of the normalization where a group takes several planes."""
_CPU_GROUPS, _GPU_GROUPS = 4, 16
"""Groups per compute unit that compute statistics."""
_MIN_ELEMENTS = 4096
"""Minimum elements per group."""
_MAX_ELEMENTS = 32768
"""Maximum elements of a work-item with several channels: they stay in the second-level cache for the second pass."""
_WHOLE_GROUP = 1024
"""Maximum work-items of a group that computes a whole channel."""
_WHOLE_ELEMENTS = 16
"""Maximum elements for each of them: with more, statistics by many groups save more than their launch costs."""
_MAX_CHANNELS = 16
"""Maximum channels per work-item."""
_FORWARD = ("x", "weight", "bias", "out", "means", "variances")
_FORWARD_ADD = ("x", "addend", "weight", "bias", "out", "means", "variances")
_BACKWARD = ("g", "x", "weight", "means", "variances", "dx", "dweight", "dbias")
_BACKWARD_RELU = ("g", "x", "weight", "bias", "means", "variances", "dx", "dweight", "dbias")


@dataclass(frozen=True, slots=True)
class _Division:
    """Division of (images, channels, inner) among groups."""

    planes: ChannelPlanes
    channels_each: int
    """Channels per work-item of a CPU: enough short planes for long contiguous reads."""
    images_each: int
    """Images per group of the reduction."""
    images_applied: int
    """Images per group of the normalization."""
    groups: tuple[int, int]
    """Work-items per group of the reduction and of the normalization."""
    width: int
    """Elements per vector."""
    dtype: DType
    whole: bool = False
    """True if each group reduces and normalizes a whole channel, in one launch instead of two."""

    def items(self, group: int, images_each: int) -> tuple[int, int]:
        """Return the work-items of a launch per axis."""
        channels = self.planes.channels // self.channels_each
        return channels * group, ceil_div(self.planes.images, images_each)

    @property
    def parts(self) -> int:
        """Number of groups that share a channel's reduction."""
        return ceil_div(self.planes.images, self.images_each)

    @property
    def partial_bytes(self) -> int:
        """Size of all partial results."""
        return 2 * self.parts * self.planes.channels * itemsize(real_type(self.dtype))

    def partial_results(self, place: int, images: str = "") -> Args:
        """Return the arguments for the partial results in workspace `place`; `images` names the images of each."""
        if self.whole:
            return {}
        args: Args = {"partial": Workspace(place), "parts": self.parts}
        return args | {images: self.images_each} if images else args

    def definitions(self, group: int) -> Definitions:
        """Return the definitions of a kernel with `group` work-items per group, whose parts read short planes at once."""
        return {
            "DTYPE": self.dtype.name,
            "REAL": real_type(self.dtype),
            "WIDTH": self.width,
            "CHANNELS_EACH": self.channels_each,
            "GROUP": group,
            "PLANE_LANES": min(group, _lanes(self.planes, self.width)),
            "WHOLE_CHANNELS": self.whole,
        }

    @property
    def lengths(self) -> Args:
        return {"images": self.planes.images, "channels": self.planes.channels, "inner": self.planes.inner}


def _divide(runtime: Runtime, planes: ChannelPlanes, dtype: DType) -> _Division:
    features = runtime.features
    width = max(1, features.vector_width // (2 if real_type(dtype) == "double" else 1))
    while width > 1 and width > planes.inner:
        width //= 2
    short = planes.inner <= _SHORT_PLANE
    channels_each = math.gcd(planes.channels, _MAX_CHANNELS) if features.cpu and short else 1
    images_each = _images_each(runtime, planes, channels_each)
    if features.cpu:
        return _Division(planes, channels_each, images_each, images_each, (1, 1), width, dtype)
    whole = power_of_two_at_most(min(features.max_group_size, _WHOLE_GROUP))
    if planes.images * planes.inner <= whole * _WHOLE_ELEMENTS:
        whole = min(
            whole,
            max(filled(features, _SHORT_GROUP), power_of_two_at_least(planes.images * planes.inner // (2 * width))),
        )
        return _Division(planes, 1, planes.images, planes.images, (whole, whole), width, dtype, whole=True)
    applying, lanes = filled(features, _SHORT_GROUP) if short else features.group_size, _lanes(planes, width)
    if lanes < applying:
        applying = min(features.group_size, _PLANES_GROUP)
    return _Division(planes, 1, images_each, max(1, applying // lanes), (features.group_size, applying), width, dtype)


def _lanes(planes: ChannelPlanes, width: int) -> int:
    """Return the work-items that can read a plane at once, a power of two."""
    return power_of_two_at_least(ceil_div(planes.inner, width))


def _images_each(runtime: Runtime, planes: ChannelPlanes, channels_each: int) -> int:
    """Return the images per group of the reduction, few enough to keep the device busy."""
    busy = (_CPU_GROUPS if runtime.features.cpu else _GPU_GROUPS) * runtime.features.compute_units
    least = ceil_div(_MIN_ELEMENTS, planes.inner * channels_each)
    splits = ceil_div(busy * channels_each, planes.channels)
    each = max(ceil_div(planes.images, splits), min(least, planes.images))
    return each if channels_each == 1 else max(1, min(each, _MAX_ELEMENTS // (planes.inner * channels_each)))


def _strides(**operands: ChannelPlanes) -> Args:
    """Return the strides of images and channels of each operand."""
    args: Args = {}
    for name, planes in operands.items():
        args |= {f"{name}_image": planes.steps[0], f"{name}_channel": planes.steps[1]}
    return args


def _forward(
    runtime: Runtime,
    inputs: Inputs,
    outputs: tuple[Spec, ...],
    params: Params,
    *,
    relu: bool = False,
    add: bool = False,
) -> Launch | Declined:
    found = batch_norm.with_addend(inputs) if add else batch_norm.forward(inputs)
    if isinstance(found, Declined):
        return found
    planes = (found,) if isinstance(found, ChannelPlanes) else found
    if batch_norm_rows.supports(runtime, *planes):
        return batch_norm_rows.forward(runtime, planes, inputs, outputs, params, relu=relu)
    x, *addends = planes
    division = _divide(runtime, x, outputs[0].dtype)
    definitions = optional("WEIGHT", inputs[-2]) | optional("BIAS", inputs[-1])
    names = _FORWARD_ADD if add else _FORWARD
    memory = tensors(dict(zip(names, (*inputs, *outputs), strict=True)))
    memory |= {"eps": params["eps"]}
    for addend in addends:
        memory |= _strides(addend=addend)
    reducing, applying = division.groups
    geometry = {**division.lengths, **_strides(x=x)}
    apply = runtime.launch(
        "rowwise/batch_norm",
        definitions | division.definitions(applying) | {"RELU": relu, "ADDEND": add},
        memory
        | geometry
        | division.partial_results(len(names), "images_part")
        | {"images_each": division.images_applied},
        division.items(applying, division.images_applied),
        (applying, 1),
        kernel="batch_apply",
    )
    if division.whole:
        return apply
    statistics = runtime.launch(
        "rowwise/batch_norm",
        definitions | division.definitions(reducing),
        {"x": memory["x"], "partial": Workspace(len(names)), **geometry, "images_each": division.images_each},
        division.items(reducing, division.images_each),
        (reducing, 1),
        kernel="batch_statistics",
    )
    return LaunchSequence((statistics, apply), (division.partial_bytes,))


def _backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params, *, relu: bool = False
) -> Launch | Declined:
    planes = batch_norm.backward(inputs, relu=relu)
    if isinstance(planes, Declined):
        return planes
    if batch_norm_rows.supports(runtime, *planes):
        return batch_norm_rows.backward(runtime, planes, inputs, outputs, params, relu=relu)
    g, x = planes
    division = _divide(runtime, x, outputs[0].dtype)
    definitions = optional("WEIGHT", inputs[2]) | optional("BIAS", inputs[3] if relu else None)
    definitions |= {"GRADIENT_DTYPE": outputs[1].dtype.name, "RELU": relu}
    names = _BACKWARD_RELU if relu else _BACKWARD
    memory = tensors(dict(zip(names, (*inputs, *outputs), strict=True)))
    memory |= {"eps": params["eps"]}
    reducing, applying = division.groups
    geometry = {**division.lengths, **_strides(g=g, x=x)}

    def select(*operands: str) -> Args:
        return {name: memory[name] for name in operands if name in memory}

    saved = ("weight", "bias", "means", "variances", "eps")
    apply = runtime.launch(
        "rowwise/batch_norm",
        definitions | division.definitions(applying),
        select("g", "x", *saved, "dx", "dweight", "dbias")
        | geometry
        | division.partial_results(len(names))
        | {"images_each": division.images_applied},
        division.items(applying, division.images_applied),
        (applying, 1),
        kernel="batch_input_grad",
    )
    if division.whole:
        return apply
    sums = runtime.launch(
        "rowwise/batch_norm",
        definitions | division.definitions(reducing),
        select("g", "x", *(saved if relu else ("means",)))
        | geometry
        | {"partial": Workspace(len(names)), "images_each": division.images_each},
        division.items(reducing, division.images_each),
        (reducing, 1),
        kernel="batch_sums",
    )
    return LaunchSequence((sums, apply), (division.partial_bytes,))


LOWERINGS: dict[str, LoweringFunction] = {
    "batch_norm": _forward,
    "batch_norm_grad": _backward,
    "batch_norm_relu": partial(_forward, relu=True),
    "batch_norm_add_relu": partial(_forward, relu=True, add=True),
    "batch_norm_relu_grad": partial(_backward, relu=True),
}
