"""Attention and its gradient, computed tile by tile so that the scores are never in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.table import LoweringFunction
from polyhal.backends.common.problems.attention import AttentionShape, merge_batch_axes, refusal
from polyhal.backends.wgpu.launch import Parameter
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import Spec, broadcast_strides
from polyhal.hal.protocol import Declined, InputSpec, Launch

Inputs = tuple[InputSpec | None, ...]

_VECTOR = 4
_MAX_FEATURES = 128
_WORDS = 32
"""Parameters that every device takes with a launch."""
_LANE_GROUP = 8
"""Invocations per group where each is a lane of a vector unit; so many are one such unit on common processors."""
_LANE_ROWS, _LANE_GRADIENT_ROWS = 4, 2
"""Rows that such an invocation works on; more would take seconds to compile."""
_LANE_VECTORS = 128
"""Vectors of features that it may hold without leaving the first-level cache."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """A group works on `rows` by `columns` scores, an invocation on `height` by `width` of them."""

    rows: int
    columns: int
    height: int = 4
    width: int = 4

    @property
    def lanes(self) -> int:
        return self.columns // self.width

    @property
    def group(self) -> int:
        return self.rows // self.height * self.lanes


FORWARD = (Tiles(64, 64), Tiles(64, 32), Tiles(32, 32), Tiles(32, 16), Tiles(16, 16))
"""In the order of preference; the first that fits into the device's local memory is taken."""
BACKWARD = (Tiles(64, 32), Tiles(32, 32), Tiles(32, 16), Tiles(16, 16))


def _pitch(quads: int) -> int:
    return round_up(quads, 8)


def _padded(quads: int, tiles: Tiles) -> int:
    """Vectors per row where every invocation of a row takes as many."""
    return _pitch(round_up(quads, tiles.lanes))


def _scratch(runtime: Runtime, tiles: Tiles) -> int:
    """Vectors that reductions over a row take where no subgroup holds one."""
    features = runtime.features
    return 0 if features.subgroups and features.subgroup_sizes[0] >= tiles.lanes else 2 * ceil_div(tiles.group, _VECTOR)


def _forward_vectors(tiles: Tiles, quads: int, value_quads: int) -> int:
    weights = tiles.rows * _pitch(tiles.columns // _VECTOR)
    keys = max(tiles.columns * _pitch(quads), weights)
    return tiles.rows * _pitch(quads) + keys + tiles.columns * _padded(value_quads, tiles)


def _backward_vectors(tiles: Tiles, quads: int, value_quads: int) -> int:
    each = _padded(quads, tiles) + _padded(value_quads, tiles)
    return (tiles.rows + tiles.columns) * each + tiles.rows * _pitch(tiles.columns // _VECTOR)


@dataclass(frozen=True, slots=True)
class Way:
    """The kernel of one direction: its file, what it is compiled with, and the rows that a group takes."""

    kernel: str
    definitions: Mapping[str, Any]
    rows: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What both directions need to know of a call."""

    shape: AttentionShape
    definitions: Mapping[str, Any]
    axes: int
    mask_strides: tuple[int, ...]

    def strides(self, operand: int, row: int) -> tuple[int, ...]:
        """The members of an operand: batch strides, then the row's."""
        return (*self.shape.batch_strides[operand][3 - self.axes :], row)

    def lengths(self, scale: float) -> list[Parameter]:
        s = self.shape
        return [
            *_uints(s.t, s.s, s.d, s.e), Constant(scale, "float"), *_uints(s.count, *s.batch[4 - self.axes :])
        ]  # fmt: skip


def _uints(*values: int) -> list[Parameter]:
    return [Constant(v, "uint") for v in values]


def _plan(operands: Sequence[Spec], mask: Spec | None, results: Sequence[Spec], causal: bool) -> Plan | Declined:
    """`operands` end with q, k, v; all have features as their last axis, as have `results`."""
    q, _, v = operands[-3:]
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    if max(d, e) > _MAX_FEATURES:
        return Declined(f"heads of {max(d, e)} features; the kernel takes {_MAX_FEATURES}")
    if any(o.strides[-1] != 1 and o.shape[-1] > 1 for o in operands):
        return Declined("features of a head do not lie next to each other")
    shape = merge_batch_axes(operands, mask, t, s, d, e)
    if isinstance(shape, Declined):
        return shape
    axes = next(n for n in (1, 2, 3) if all(b == 1 for b in shape.batch[: 3 - n]))
    whole = all(
        o.aligned and o.strides[-2] % _VECTOR == 0 and all(b % _VECTOR == 0 for b in steps)
        for o, steps in zip(operands, shape.batch_strides, strict=False)
    ) and all(r.aligned for r in results)
    tail = bool(d % _VECTOR or e % _VECTOR)
    mask_strides: tuple[int, ...] = ()
    if mask is not None:
        spread = broadcast_strides(mask.shape, mask.strides, (*q.shape[:-2], t, s))
        mask_strides = (*shape.batch_strides[-1][3 - axes :], *spread[-2:])
    definitions = {
        "DTYPE": q.dtype.name, "WIDTH": _VECTOR if whole and not tail else 1, "TAIL": tail, "CAUSAL": causal, "AXES": axes,
        "MASK_DTYPE": mask.dtype.name if mask is not None else "", "QUADS": ceil_div(d, _VECTOR),
        "VALUE_QUADS": ceil_div(e, _VECTOR),
    }  # fmt: skip
    return Plan(shape, definitions, axes, mask_strides)


def _choose(
    runtime: Runtime, plan: Plan, tiles: Sequence[Tiles], vectors: Callable[[Tiles, int, int], int], lane_rows: int
) -> Way | Declined:
    """The kernel for a direction: `tiles` of so many `vectors` in workgroup memory, or up to `lane_rows` rows per lane."""
    features = runtime.features
    quads, value_quads = plan.definitions["QUADS"], plan.definitions["VALUE_QUADS"]
    if features.cpu:
        rows = max(1, min(lane_rows, _LANE_VECTORS // (quads + value_quads)))
        return Way("cpu", {"R": rows, "GROUP": _LANE_GROUP}, rows * _LANE_GROUP)
    for t in tiles:
        memory = (vectors(t, quads, value_quads) + _scratch(runtime, t)) * 16
        if memory <= features.local_memory and t.group <= features.max_group_size:
            sizes = {"ROWS": t.rows, "COLUMNS": t.columns, "R": t.height, "C": t.width}
            return Way("tiles", {**group_reduce.definitions(runtime, t.lanes, t.group), **sizes}, t.rows)
    return Declined("the device has too little local memory")


def _attention(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    q, k, v, mask = inputs
    reason = refusal((q, k, v), mask)
    if reason:
        return Declined(reason)
    assert isinstance(q, Spec)
    assert isinstance(k, Spec)
    assert isinstance(v, Spec)
    masks = [mask] if isinstance(mask, Spec) else []
    if too_large(runtime, q, k, v, *masks, *outputs):
        return Declined("an operand is larger than what a kernel can see at once")
    plan = _plan((q, k, v), masks[0] if masks else None, outputs[:1], bool(params["causal"]))
    if isinstance(plan, Declined):
        return plan
    way = _choose(runtime, plan, FORWARD, _forward_vectors, _LANE_ROWS)
    if isinstance(way, Declined):
        return way
    strides = [n for i, spec in enumerate((q, k, v)) for n in plan.strides(i, spec.strides[-2])]
    parameters = [
        *(Tensor(i) for i in range(3)), *(Tensor(3) for _ in masks), Tensor(4), Tensor(5),
        *plan.lengths(params["scale"]), *_uints(*strides, *plan.mask_strides),
    ]  # fmt: skip
    groups = ceil_div(plan.shape.t, way.rows) * plan.shape.count
    definitions = {**plan.definitions, **way.definitions}
    return runtime.launch("attention", f"attention/{way.kernel}", definitions, parameters, groups)


def _attention_grad(
    runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    g, q, k, v, mask, out, lse = inputs
    reason = refusal((q, k, v, g, out), mask)
    if reason:
        return Declined(reason)
    assert isinstance(g, Spec)
    assert isinstance(q, Spec)
    assert isinstance(k, Spec)
    assert isinstance(v, Spec)
    assert isinstance(out, Spec)
    if not isinstance(lse, Spec) or lse.dtype is not dtypes.float32:
        return Declined("a logsumexp of an unexpected dtype")
    if not out.is_contiguous or not lse.is_contiguous:
        return Declined("the saved results are not contiguous")
    masks = [mask] if isinstance(mask, Spec) else []
    if too_large(runtime, g, q, k, v, out, *masks, *outputs):
        return Declined("an operand is larger than what a kernel can see at once")
    plan = _plan((g, q, k, v), masks[0] if masks else None, (out, *outputs), bool(params["causal"]))
    if isinstance(plan, Declined):
        return plan
    way = _choose(runtime, plan, BACKWARD, _backward_vectors, _LANE_GRADIENT_ROWS)
    if isinstance(way, Declined):
        return way
    strides = [n for i, spec in enumerate((g, q, k, v)) for n in plan.strides(i, spec.strides[-2])]
    last = [*plan.lengths(params["scale"]), *_uints(*strides, *plan.mask_strides)]
    first: list[Parameter] = [*(Tensor(i) for i in range(4)), *(Tensor(4) for _ in masks), Tensor(6)]
    # Arguments: 7 inputs, 3 outputs, then the workspace.
    delta = Workspace(10)
    of_queries = [*first, Tensor(5), delta, Tensor(7), *last]
    of_keys = [*first, delta, Tensor(8), Tensor(9), *last]
    if sum(not isinstance(p, Workspace) for p in of_queries) > _WORDS:
        return Declined("the strides of a mask over so many axes are more parameters than the kernel takes")
    steps = []
    for name, keys, length, parameters in (
        ("attention_grad.queries", False, plan.shape.t, of_queries), ("attention_grad.keys", True, plan.shape.s, of_keys)
    ):  # fmt: skip
        definitions = {**plan.definitions, **way.definitions, "KEYS": keys}
        groups = ceil_div(length, way.rows) * plan.shape.count
        steps.append(runtime.launch(name, f"attention/{way.kernel}_grad", definitions, parameters, groups))
    return LaunchSequence("attention_grad", steps, (plan.shape.count * plan.shape.t * 4,))


LOWERINGS: dict[str, LoweringFunction] = {"attention": _attention, "attention_grad": _attention_grad}
