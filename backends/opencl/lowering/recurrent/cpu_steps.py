"""Recurrent layers on CPUs: work-items take a few sequences each through all time steps, with gates in registers."""

from __future__ import annotations

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Strided, Tensor, Workspace
from polyhal.backends.opencl.lowering.recurrent.problem import LayerSteps
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Declined, Launch

_ROW_COSTS = {1: 2.5, 2: 3.0, 4: 4.5, 6: 6.0}
"""Relative time of a step, by the sequences of a work-item: few of them wait for the weight."""
_NARROW_ROW_COSTS = {1: 2.5, 2: 3.0, 3: 4.0}
"""The same with 16 registers instead of 32."""
_WIDE = 16
"""Floats of a vector from which on there are 32 registers."""
_COLUMNS = 4
"""Vectors of a panel of the weight, in the gradient."""
_MAX_WEIGHT = 4 << 20
"""Bytes of a weight that work-items read in each step from a cache of their own."""


def _rows(runtime: Runtime, batch: int) -> int:
    """Sequences per work-item, such that all compute units finish early."""
    costs = _ROW_COSTS if runtime.features.vector_width >= _WIDE else _NARROW_ROW_COSTS
    return min(costs, key=lambda n: ceil_div(ceil_div(batch, n), runtime.features.compute_units) * costs[n])


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
    width, rows = runtime.features.vector_width, _rows(runtime, p.batch)
    panels = Workspace(p.first_workspace)
    definitions: dict[str, str | int | bool] = {
        "CELL": p.cell, "WIDTH": width, "ROWS": rows, "BIAS": "bias" in p.tensors
    }  # fmt: skip
    pack = runtime.launch(
        "recurrent/cpu_steps", definitions, {**_weight(p), "packed": panels, "size": p.size},
        (ceil_div(p.size, width),), (1,), kernel="recurrent_cpu_pack_gates",
    )  # fmt: skip
    args: Arguments = {
        **p.sequences("x"), **p.states("hidden", "state"), **p.results("bias", "outs", "states"), "packed": panels,
        **p.numbers(),
    }  # fmt: skip
    run = runtime.launch("recurrent/cpu_steps", definitions, args, (ceil_div(p.batch, rows),), (1,))
    return LaunchSequence((pack, run), (4 * round_up(p.size, width) * p.size * p.gates,))


def gradient(runtime: Runtime, p: LayerSteps) -> Launch | Declined:
    """Build the launches of the part of a layer's gradient that goes from step to step."""
    declined = _refusal(p)
    if declined:
        return declined
    width, rows = runtime.features.vector_width, _rows(runtime, p.batch)
    panel = _COLUMNS * width
    panels = Workspace(p.first_workspace)
    definitions: dict[str, str | int | bool] = {"CELL": p.cell, "WIDTH": width, "ROWS": rows, "COLUMNS": _COLUMNS}
    pack = runtime.launch(
        "recurrent/cpu_steps_grad", definitions, {**_weight(p), "packed": panels, "size": p.size},
        (ceil_div(p.size, panel),), (1,), kernel="recurrent_cpu_pack_units",
    )  # fmt: skip
    args: Arguments = {
        **p.sequences("grad", "grad_states", "gates", "fed_back", "states"), **p.states("first"),
        **p.results("d_gates", "d_fed_back", "d_hidden", "d_state"), "packed": panels, **p.numbers(),
    }  # fmt: skip
    run = runtime.launch("recurrent/cpu_steps_grad", definitions, args, (ceil_div(p.batch, rows),), (1,))
    return LaunchSequence((pack, run), (4 * round_up(p.size, panel) * p.size * p.gates,))


def _weight(p: LayerSteps) -> Arguments:
    place, spec = p.tensors["weight"]
    return {"weight": Strided(Tensor(place), dict(zip(("row", "column"), spec.strides, strict=True)))}
