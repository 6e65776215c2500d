"""Batch norm with the statistics of the batch, and its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems import batch_norm
from polyhal.backends.common.problems.batch_norm import ChannelPlanes
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.wgpu.launch import DispatchLaunch, Parameter
from polyhal.backends.wgpu.lowering.support import group_reduce, runs
from polyhal.backends.wgpu.lowering.support.windows import too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

_VECTOR = 4
_TERMS_EACH = 32
"""Elements per invocation below which more parts of a channel cost more than they win."""
_JOINING = 32
"""Invocations of a GPU that join the parts of a channel."""
_PAIR = 8
"""Bytes of the two partial results of a part."""


class _Plan:
    """How the elements of the channels are walked: in vectors, by teams, in parts."""

    def __init__(self, runtime: Runtime, planes: Sequence[ChannelPlanes], large: Sequence[Spec]) -> None:
        x = planes[-1]
        steps = [s for q in planes for s in q.steps]
        whole = all(s.aligned for s in large) and all(n % _VECTOR == 0 for n in (x.inner, *steps))
        self.runtime = runtime
        self.planes = planes
        self.images, self.channels, self.inner = x.images, x.channels, x.inner
        self.width = _VECTOR if whole else 1
        self.length = x.images * x.inner
        vectors = ceil_div(self.length, self.width)
        if runtime.features.cpu:
            self.lanes = group_reduce.cpu_lanes(runtime, vectors)
        else:
            self.lanes = min(runtime.features.group_size, power_of_two_at_least(ceil_div(vectors, 8)))
        parts = min(
            group_reduce.workers(runtime) // (self.channels * self.lanes), self.length // (self.lanes * _TERMS_EACH)
        )
        self.part_length = round_up(ceil_div(self.length, max(1, parts)), self.width)
        self.parts = ceil_div(self.length, self.part_length)
        self.workspace = self.parts * self.channels * _PAIR

    def _uints(self, *values: int) -> list[Parameter]:
        return [Constant(v, "uint") for v in values]

    def gather(self, definitions: Mapping[str, Any], tensors: Sequence[Tensor], workspace: int) -> DispatchLaunch:
        """The parts of every channel."""
        tasks = self.channels * self.parts
        group = group_reduce.group_size(self.runtime, self.lanes, tasks)
        in_runs = self.images > 1
        parameters = [
            *tensors, Workspace(workspace), *self._uints(self.channels, self.parts, self.part_length, self.length),
            *self._uints(*(q.steps[1] for q in self.planes)),
            *runs.members(self.inner if in_runs else 0, self.lanes * self.width, *((q.steps[0], 1) for q in self.planes)),
        ]  # fmt: skip
        return self.runtime.launch(
            "batch_norm_parts", "rowwise/batch_norm_partials",
            {**definitions, **group_reduce.definitions(self.runtime, self.lanes, group), "WIDTH": self.width, "RUNS": in_runs},
            parameters, ceil_div(tasks * self.lanes, group),
        )  # fmt: skip

    def join(
        self, definitions: Mapping[str, Any], operands: Sequence[Parameter], numbers: Sequence[Parameter]
    ) -> DispatchLaunch:
        """The parts of every channel joined."""
        lanes = 1 if self.runtime.features.cpu or self.parts == 1 else _JOINING
        group = group_reduce.group_size(self.runtime, lanes, self.channels)
        return self.runtime.launch(
            "batch_norm_join", "rowwise/batch_norm_reduce",
            {**definitions, **group_reduce.definitions(self.runtime, lanes, group)},
            [*operands, *self._uints(self.channels, self.parts), *numbers], ceil_div(self.channels * lanes, group),
        )  # fmt: skip

    def apply(self, definitions: Mapping[str, Any], operands: Sequence[Parameter], eps: Constant) -> DispatchLaunch:
        """The elements of every plane, from what was joined."""
        count = self.images * self.channels
        vectors = ceil_div(self.inner, self.width)
        if self.runtime.features.cpu:
            lanes = group_reduce.cpu_lanes(self.runtime, vectors)
        else:
            lanes = min(self.runtime.features.group_size, power_of_two_at_least(vectors))
        group = group_reduce.group_size(self.runtime, lanes, count)
        sizes = (self.images, self.channels, self.inner, *(s for q in self.planes for s in q.steps))
        return self.runtime.launch(
            "batch_norm_apply", "rowwise/batch_norm_apply",
            {**definitions, "WIDTH": self.width, "LANES": lanes, "GROUP": group},
            [*operands, eps, *self._uints(*sizes)], ceil_div(count * lanes, group),
        )  # fmt: skip


def _forward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = batch_norm.forward(inputs)
    if isinstance(found, Declined):
        return found
    x, weight, bias = inputs
    assert isinstance(x, Spec)
    if too_large(runtime, x, outputs[0]):
        return Declined("an operand is larger than what a kernel can see at once")
    plan = _Plan(runtime, (found,), (x, outputs[0]))
    definitions = {
        "DTYPE": x.dtype.name, "GRADIENT": False, "WEIGHT": weight.dtype.name if weight else "",
        "BIAS": bias.dtype.name if bias else "",
    }  # fmt: skip
    sizes = [Constant(plan.part_length, "uint"), Constant(plan.length, "uint")]
    small = [Tensor(i) for i in (1, 2) if inputs[i] is not None]
    launches = (
        plan.gather(definitions, [Tensor(0)], 6),
        plan.join(definitions, [Workspace(6), Tensor(4), Tensor(5)], sizes),
        plan.apply(definitions, [Tensor(0), *small, Tensor(4), Tensor(5), Tensor(3)], Constant(params["eps"], "float")),
    )
    return LaunchSequence("batch_norm", launches, (plan.workspace,))


def _backward(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    found = batch_norm.backward(inputs)
    if isinstance(found, Declined):
        return found
    g, x, weight = inputs[:3]
    assert isinstance(g, Spec)
    assert isinstance(x, Spec)
    if too_large(runtime, g, x, outputs[0]):
        return Declined("an operand is larger than what a kernel can see at once")
    plan = _Plan(runtime, found, (g, x, outputs[0]))
    definitions = {
        "DTYPE": x.dtype.name, "GRADIENT": True, "WEIGHT": weight.dtype.name if weight else "", "BIAS": "",
        "OUT_DTYPE": outputs[1].dtype.name,
    }  # fmt: skip
    eps = Constant(params["eps"], "float")
    small = [Tensor(i) for i in (2, 3, 4) if inputs[i] is not None]
    launches = (
        plan.gather(definitions, [Tensor(0), Tensor(1), Tensor(3)], 8),
        plan.join(definitions, [Workspace(8), Tensor(4), Tensor(6), Tensor(7), Workspace(9)], [eps]),
        plan.apply(definitions, [Tensor(0), Tensor(1), *small, Tensor(5), Workspace(9)], eps),
    )
    return LaunchSequence("batch_norm_grad", launches, (plan.workspace, plan.channels * _PAIR))


LOWERINGS: dict[str, LoweringFunction] = {"batch_norm": _forward, "batch_norm_grad": _backward}
