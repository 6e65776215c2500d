"""Recurrent layers on CPUs: each work-item runs a few sequences through all time steps, with gates in registers."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Strided, Tensor, Workspace
from polyhal.backends.opencl_c.lowering.recurrent.problem import LayerSteps
from polyhal.backends.opencl_c.lowering.support.prefetch import prefetch_distance
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_MAX_ROWS, _MAX_ROWS_NARROW = 6, 3
"""Maximum sequences of a tile, with 32 vector registers and with 16."""
_MIN_COST = 2
"""Sequences whose multiplications take as long as the latency of a sum."""
_MAX_BLOCK = 48
"""Maximum sequences of a work-item: their states and a panel of the weight stay in the first-level cache."""
_WIDE = 16
"""Minimum floats per vector of processors with 32 vector registers."""
_COLUMNS = 4
"""Vectors of a panel of the weight, in the gradient."""
_MAX_WEIGHT = 4 << 20
"""Maximum bytes of a weight that each core reads from its own cache in every step."""


def _tiles(runtime: Runtime, batch: int) -> tuple[int, int]:
    """Return sequences per tile and tiles per work-item, such that all compute units finish early."""
    units = runtime.features.compute_units
    per_item = ceil_div(batch, units * ceil_div(batch, units * _MAX_BLOCK))
    most = _MAX_ROWS if runtime.features.vector_width >= _WIDE else _MAX_ROWS_NARROW
    rows = min(range(most, 0, -1), key=lambda n: (ceil_div(per_item, n) * max(n, _MIN_COST), round_up(per_item, n)))
    return rows, ceil_div(per_item, rows)


def _refusal(p: LayerSteps) -> Declined | None:
    if p.weight_bytes > _MAX_WEIGHT:
        return Declined(
            f"the weight has more than {_MAX_WEIGHT >> 20} MiB: products over the whole batch read it less often"
        )
    return None


def forward(runtime: Runtime, p: LayerSteps) -> Launch | Declined:
    """Build the launches of a layer: the weight is packed, then all steps run in one launch."""
    declined = _refusal(p)
    if declined:
        return declined
    width = runtime.features.vector_width
    rows, tiles = _tiles(runtime, p.batch)
    panels = Workspace(p.first_workspace)
    definitions: dict[str, str | int | bool] = {
        **p.forward_definitions(),
        "WIDTH": width,
        "ROWS": rows,
        "BLOCK": tiles * rows,
        "PREFETCH_DISTANCE": prefetch_distance(runtime),
    }
    pack = runtime.launch(
        "recurrent/cpu_steps",
        definitions,
        {**_weight(p), "packed": panels, "size": p.size},
        (ceil_div(p.size, width),),
        (1,),
        kernel="recurrent_cpu_pack_gates",
    )
    args: Arguments = {**p.steps_args(), "packed": panels}
    run = runtime.launch("recurrent/cpu_steps", definitions, args, (ceil_div(p.batch, tiles * rows),), (1,))
    return LaunchSequence((pack, run), (4 * round_up(p.size, width) * p.size * p.gates,))


def gradient(runtime: Runtime, p: LayerSteps) -> Launch | Declined:
    """Build the launches of the sequential part of a layer's gradient."""
    declined = _refusal(p)
    if declined:
        return declined
    width = runtime.features.vector_width
    rows, tiles = _tiles(runtime, p.batch)
    panel = _COLUMNS * width
    panels = Workspace(p.first_workspace)
    definitions: dict[str, str | int | bool] = {
        "CELL": p.cell,
        "WIDTH": width,
        "ROWS": rows,
        "BLOCK": tiles * rows,
        "COLUMNS": _COLUMNS,
        "PREFETCH_DISTANCE": prefetch_distance(runtime),
    }
    pack = runtime.launch(
        "recurrent/cpu_steps_grad",
        definitions,
        {**_weight(p), "packed": panels, "size": p.size},
        (ceil_div(p.size, panel),),
        (1,),
        kernel="recurrent_cpu_pack_units",
    )
    args: Arguments = {**p.steps_grad_args(), "packed": panels}
    run = runtime.launch("recurrent/cpu_steps_grad", definitions, args, (ceil_div(p.batch, tiles * rows),), (1,))
    return LaunchSequence((pack, run), (4 * round_up(p.size, panel) * p.size * p.gates,))


def _weight(p: LayerSteps) -> Arguments:
    place, spec = p.tensors["weight"]
    return {"weight": Strided(Tensor(place), dict(zip(("row", "column"), spec.strides, strict=True)))}
