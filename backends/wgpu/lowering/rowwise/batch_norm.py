"""Batch norm with batch statistics, and its gradient.

Kernels: shaders/wgsl/rowwise/batch_norm_partials.wgsl, batch_norm_reduce.wgsl and batch_norm_apply.wgsl, in this order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Argument, Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import batch_norm
from polyhal.backends.common.problems.batch_norm import ChannelPlanes
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.wgpu.lowering.support import group_reduce, term_iterator
from polyhal.backends.wgpu.lowering.support.windows import OPERAND_TOO_LARGE, too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_VECTOR = 4
_MIN_TERMS = 32
"""Minimum elements per invocation for which more splits of a channel are faster."""
_REDUCE_LANES = 32
"""Invocations of a GPU that combine the splits of a channel."""
_PAIR = 8
"""Bytes of the two partial results of a split."""


class _Launcher:
    """The launches of batch norm over one shape: vector width, lanes and splits of each channel."""

    def __init__(self, runtime: Runtime, planes: Mapping[str, ChannelPlanes], large: Sequence[Spec]) -> None:
        """Choose vector width, lanes and splits.

        `large` are all operands of the shape of x; `planes` maps operands of the first launch to layouts.
        """
        x = planes["x"]
        steps = [s for q in planes.values() for s in q.steps]
        vectorizable = all(s.aligned for s in large) and all(n % _VECTOR == 0 for n in (x.inner, *steps))
        self.runtime = runtime
        self.planes = planes
        self.images, self.channels, self.inner = x.images, x.channels, x.inner
        self.width = _VECTOR if vectorizable else 1
        self.length = x.images * x.inner
        vectors = ceil_div(self.length, self.width)
        if runtime.features.cpu:
            self.lanes = group_reduce.cpu_lanes(runtime, vectors)
        else:
            self.lanes = min(runtime.features.group_size, power_of_two_at_least(ceil_div(vectors, 8)))
        splits = min(
            group_reduce.busy_invocations(runtime) // (self.channels * self.lanes),
            self.length // (self.lanes * _MIN_TERMS),
        )
        self.split_length = round_up(ceil_div(self.length, max(1, splits)), self.width)
        self.splits = ceil_div(self.length, self.split_length)
        self.workspace = self.splits * self.channels * _PAIR

    def partials(self, definitions: Mapping[str, Any], operands: Arguments) -> Launch:
        """Return the launch that reduces the splits of every channel."""
        tasks = self.channels * self.splits
        group = group_reduce.group_size(self.runtime, self.lanes, tasks)
        two_axes = self.images > 1
        strides = {name: (q.steps[0], 1) for name, q in self.planes.items()}
        args: Arguments = {
            **operands,
            "channels": self.channels,
            "splits": self.splits,
            "split_length": self.split_length,
            "length": self.length,
            **{f"{name}_channel": q.steps[1] for name, q in self.planes.items()},
            **term_iterator.members(self.inner if two_axes else 0, self.lanes * self.width, strides),
        }
        variables = {
            **definitions,
            **group_reduce.definitions(self.runtime, self.lanes, group),
            "WIDTH": self.width,
            "TWO_AXES": two_axes,
        }
        return self.runtime.launch("rowwise/batch_norm_partials", variables, args, ceil_div(tasks * self.lanes, group))

    def reduce(self, definitions: Mapping[str, Any], operands: Arguments) -> Launch:
        """Return the launch that combines the splits of every channel."""
        lanes = 1 if self.runtime.features.cpu or self.splits == 1 else _REDUCE_LANES
        group = group_reduce.group_size(self.runtime, lanes, self.channels)
        return self.runtime.launch(
            "rowwise/batch_norm_reduce",
            {**definitions, **group_reduce.definitions(self.runtime, lanes, group)},
            {**operands, "channels": self.channels, "splits": self.splits},
            ceil_div(self.channels * lanes, group),
        )

    def apply(self, definitions: Mapping[str, Any], operands: Arguments) -> Launch:
        """Return the launch that computes the elements of every plane from the statistics."""
        count = self.images * self.channels
        vectors = ceil_div(self.inner, self.width)
        if self.runtime.features.cpu:
            lanes = group_reduce.cpu_lanes(self.runtime, vectors)
        else:
            lanes = min(self.runtime.features.group_size, power_of_two_at_least(vectors))
        group = group_reduce.group_size(self.runtime, lanes, count)
        args: dict[str, Argument] = {"images": self.images, "channels": self.channels, "inner": self.inner, **operands}
        for name, planes in self.planes.items():
            args |= {f"{name}_image": planes.steps[0], f"{name}_channel": planes.steps[1]}
        return self.runtime.launch(
            "rowwise/batch_norm_apply",
            {**definitions, "WIDTH": self.width, "LANES": lanes, "GROUP": group},
            args,
            ceil_div(count * lanes, group),
        )


def _forward(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    planes = batch_norm.forward(inputs)
    if isinstance(planes, Declined):
        return planes
    x, weight, bias = inputs
    assert isinstance(x, Spec)
    if too_large(runtime, x, outputs[0]):
        return OPERAND_TOO_LARGE
    launcher = _Launcher(runtime, {"x": planes}, (x, outputs[0]))
    definitions = {
        "DTYPE": x.dtype.name,
        "GRADIENT": False,
        "WEIGHT": weight.dtype.name if weight else "",
        "BIAS": bias.dtype.name if bias else "",
    }
    affine = {name: Tensor(i) for i, name in ((1, "weight"), (2, "bias")) if inputs[i] is not None}
    launches = (
        launcher.partials(definitions, {"x": Tensor(0), "partial": Workspace(6)}),
        launcher.reduce(
            definitions,
            {
                "partial": Workspace(6),
                "means": Tensor(4),
                "variances": Tensor(5),
                "split_length": launcher.split_length,
                "length": launcher.length,
            },
        ),
        launcher.apply(
            definitions,
            {
                "x": Tensor(0),
                **affine,
                "mean": Tensor(4),
                "variance": Tensor(5),
                "out": Tensor(3),
                "eps": params["eps"],
            },
        ),
    )
    return LaunchSequence(launches, (launcher.workspace,))


def _backward(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    planes = batch_norm.backward(inputs)
    if isinstance(planes, Declined):
        return planes
    g, x, weight = inputs[:3]
    assert isinstance(g, Spec)
    assert isinstance(x, Spec)
    if too_large(runtime, g, x, outputs[0]):
        return OPERAND_TOO_LARGE
    launcher = _Launcher(runtime, dict(zip(("g", "x"), planes, strict=True)), (g, x, outputs[0]))
    definitions = {
        "DTYPE": x.dtype.name,
        "GRADIENT": True,
        "WEIGHT": weight.dtype.name if weight else "",
        "BIAS": "",
        "OUT_DTYPE": outputs[1].dtype.name,
    }
    images: Arguments = {"g": Tensor(0), "x": Tensor(1)}
    affine = {"weight": Tensor(2)} if weight is not None else {}
    sums: Arguments = {"sums": Workspace(9), "eps": params["eps"]}
    launches = (
        launcher.partials(definitions, {**images, "means": Tensor(3), "partial": Workspace(8)}),
        launcher.reduce(
            definitions,
            {
                "partial": Workspace(8),
                "variances": Tensor(4),
                "dweight": Tensor(6),
                "dbias": Tensor(7),
                **sums,
            },
        ),
        launcher.apply(
            definitions, {**images, **affine, "mean": Tensor(3), "variance": Tensor(4), "out": Tensor(5), **sums}
        ),
    )
    return LaunchSequence(launches, (launcher.workspace, launcher.channels * _PAIR))


LOWERINGS: dict[str, LoweringFunction] = {"batch_norm": _forward, "batch_norm_grad": _backward}
