"""Batch norm of matrices (rows, channels), and of images with channels last, on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import LaunchSequence, Workspace
from polyhal.backends.common.problems.batch_norm import ChannelPlanes
from polyhal.backends.common.problems.norm import Inputs
from polyhal.backends.opencl_c.lowering.rowwise.arguments import Args, Definitions, itemsize, optional, tensors
from polyhal.backends.opencl_c.lowering.support.rows import real_type
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_SOURCE = "rowwise/batch_norm_rows"
_GROUP, _ACROSS = 256, 8
"""GROUP and ACROSS of rowwise/batch_norm_rows.cl: work-items, and vectors of channels of a group."""
_LINES = _GROUP // _ACROSS
_TRANSACTION = 16
"""Bytes that a work-item moves at once."""
_REDUCING, _APPLYING = 4, 8
"""Groups per compute unit that compute statistics, and that normalize."""
_CHUNK = 4 * _LINES
"""CHUNK of rowwise/batch_norm_rows.cl: rows that a group loads at once."""
_FORWARD = ("x", "weight", "bias", "out", "means", "variances")
_FORWARD_ADD = ("x", "addend", "weight", "bias", "out", "means", "variances")
_BACKWARD = ("g", "x", "weight", "means", "variances", "dx", "dweight", "dbias")
_BACKWARD_RELU = ("g", "x", "weight", "bias", "means", "variances", "dx", "dweight", "dbias")


def supports(runtime: Runtime, *planes: ChannelPlanes) -> bool:
    """Return whether these operands are matrices with contiguous channels, on a GPU."""
    features = runtime.features
    if features.cpu or features.max_group_size < _GROUP or not features.local_memory_is_real:
        return False
    return all(p.inner == 1 and (p.channels == 1 or p.steps[1] == 1) for p in planes)


@dataclass(frozen=True, slots=True)
class _Division:
    """Division of (rows, channels) among groups."""

    rows: int
    channels: int
    width: int
    """Channels of a vector."""
    splits: int
    """Groups that share their channels' statistics."""
    appliers: int
    """Groups that share their channels' normalization."""

    def items(self, groups: int) -> tuple[int, int]:
        """Return the work-items per axis of a launch with `groups` groups that share channels."""
        return ceil_div(self.channels, self.width * _ACROSS) * _GROUP, groups

    @property
    def lengths(self) -> Args:
        return {"rows": self.rows, "channels": self.channels}


def _divide(runtime: Runtime, dtype: DType, steps: tuple[int, ...], planes: ChannelPlanes) -> _Division:
    rows, channels = planes.images, planes.channels
    width = _TRANSACTION // dtype.itemsize
    while width > 1 and any(n % width for n in (channels, *steps)):
        width //= 2
    blocks = ceil_div(channels, width * _ACROSS)

    def sharing(groups: int) -> int:
        return min(ceil_div(groups * runtime.features.compute_units, blocks), ceil_div(rows, _CHUNK))

    return _Division(rows, channels, width, sharing(_REDUCING), sharing(_APPLYING))


def _definitions(dtype: DType, division: _Division, operands: tuple[object, ...]) -> Definitions:
    aligned = division.width > 1 and all(s.aligned for s in operands if isinstance(s, Spec) and s.ndim > 1)
    return {"DTYPE": dtype.name, "REAL": real_type(dtype), "WIDTH": division.width, "ALIGNED": aligned}


def forward(
    runtime: Runtime,
    planes: tuple[ChannelPlanes, ...],
    inputs: Inputs,
    outputs: tuple[Spec, ...],
    params: Params,
    *,
    relu: bool,
) -> Launch:
    """Build the launches of batch norm; `planes` are x and, if `inputs` have one, the addend."""
    dtype, (x, *addends) = outputs[0].dtype, planes
    division = _divide(runtime, dtype, tuple(p.steps[0] for p in planes), x)
    definitions = _definitions(dtype, division, (*inputs, *outputs))
    definitions |= optional("WEIGHT", inputs[-2]) | optional("BIAS", inputs[-1]) | {"RELU": relu}
    definitions |= {"ADDEND": bool(addends)}
    names = _FORWARD_ADD if addends else _FORWARD
    memory = tensors(dict(zip(names, (*inputs, *outputs), strict=True)))
    for addend in addends:
        memory["addend_row"] = addend.steps[0]
    split, workspace = division.splits > 1, Workspace(len(names))
    definitions |= {"SPLIT": split}
    statistics: Args = {name: memory[name] for name in ("means", "variances")}
    lengths, row = division.lengths, {"x_row": x.steps[0]}
    launches = [
        runtime.launch(
            _SOURCE,
            definitions,
            {"x": memory["x"], **({"partial": workspace} if split else statistics), **row, **lengths},
            division.items(division.splits),
            (_GROUP, 1),
            kernel="batch_row_statistics",
        )
    ]
    if split:
        launches.append(
            runtime.launch(
                _SOURCE,
                definitions,
                {"partial": workspace, **statistics, **lengths, "splits": division.splits},
                (ceil_div(x.channels, _ACROSS) * _GROUP,),
                (_GROUP,),
                kernel="batch_row_reduce_statistics",
            )
        )
    launches.append(_apply(runtime, definitions, memory | row | {"eps": params["eps"]}, division))
    nbytes = 2 * division.splits * x.channels * itemsize(real_type(dtype))
    return LaunchSequence(launches, (nbytes,) if split else ())


def _apply(runtime: Runtime, definitions: Definitions, args: Args, division: _Division) -> Launch:
    return runtime.launch(
        _SOURCE,
        definitions,
        args | division.lengths,
        division.items(division.appliers),
        (_GROUP, 1),
        kernel="batch_row_apply",
    )


def from_moments(
    runtime: Runtime,
    x: ChannelPlanes,
    memory: Args,
    operands: Mapping[str, InputSpec | None],
    dtype: DType,
    moments: Args,
    params: Params,
) -> list[Launch]:
    """Build the launches of batch norm of contiguous rows whose moments a product has stored (lib/column_moments.h).

    `memory` holds the operands of batch_norm_rows.cl that are present, `operands` the specs of all; `moments` has the arguments
    of the reduction of moments.
    """
    division = _divide(runtime, dtype, x.steps[:1], x)
    definitions = _definitions(dtype, division, tuple(operands.values()))
    definitions |= optional("WEIGHT", operands["weight"]) | optional("BIAS", operands["bias"])
    definitions |= {"RELU": params["relu"], "ADDEND": "addend" in memory, "SPLIT": False}
    statistics: Args = {name: memory[name] for name in ("means", "variances")}
    reduced = runtime.launch(
        _SOURCE,
        definitions,
        {**moments, **statistics, "channels": x.channels},
        (x.channels // 4 * _GROUP,),
        (_GROUP,),
        kernel="batch_row_reduce_blocks",
    )
    rows: Args = {f"{name}_row": x.channels for name in ("x", "addend") if name in memory}
    return [reduced, _apply(runtime, definitions, memory | rows | {"eps": params["eps"]}, division)]


def backward(
    runtime: Runtime,
    planes: tuple[ChannelPlanes, ChannelPlanes],
    inputs: Inputs,
    outputs: tuple[Spec, ...],
    params: Params,
    *,
    relu: bool,
) -> Launch:
    """Build the launches of the gradients of batch norm."""
    g, x = planes
    dtype = outputs[0].dtype
    division = _divide(runtime, dtype, (g.steps[0], x.steps[0]), x)
    definitions = _definitions(dtype, division, (*inputs, *outputs))
    definitions |= optional("WEIGHT", inputs[2]) | optional("BIAS", inputs[3] if relu else None)
    definitions |= {"GRADIENT_DTYPE": outputs[1].dtype.name, "RELU": relu}
    names = _BACKWARD_RELU if relu else _BACKWARD
    memory = tensors(dict(zip(names, (*inputs, *outputs), strict=True)))
    memory |= {"partial": Workspace(len(names)), "sums": Workspace(len(names) + 1), "eps": params["eps"]}
    rows: Args = {"g_row": g.steps[0], "x_row": x.steps[0]}

    def select(*operands: str) -> Args:
        return {name: memory[name] for name in operands if name in memory}

    saved = ("weight", "bias", "means", "variances", "eps")
    sums = runtime.launch(
        _SOURCE,
        definitions,
        select("g", "x", *(saved if relu else ("means",)), "partial") | rows | division.lengths,
        division.items(division.splits),
        (_GROUP, 1),
        kernel="batch_row_sums",
    )
    reduced = runtime.launch(
        _SOURCE,
        definitions,
        select("partial", "variances", "dweight", "dbias", "sums", "eps")
        | {"channels": x.channels, "splits": division.splits},
        (ceil_div(x.channels, _ACROSS) * _GROUP,),
        (_GROUP,),
        kernel="batch_row_reduce_sums",
    )
    apply = runtime.launch(
        _SOURCE,
        definitions,
        select("g", "x", *saved, "dx", "sums") | rows | division.lengths,
        division.items(division.appliers),
        (_GROUP, 1),
        kernel="batch_row_input_grad",
    )
    nbytes = 2 * x.channels * itemsize(real_type(dtype))
    return LaunchSequence((sums, reduced, apply), (division.splits * nbytes, nbytes))
