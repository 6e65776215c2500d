"""Persistent recurrent layers on GPUs that co-schedule all groups of a launch: the weight stays distributed in registers.

Groups wait for each other. OpenCL does not guarantee that all groups of a launch make progress; NVIDIA's devices start
all groups of a launch before groups of the next, so one group per compute unit can run at the same time.

Source: Diamos et al., 2016, "Persistent RNNs: Stashing Recurrent Weights On-Chip".
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Workspace
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.recurrent.problem import LayerSteps
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.protocol import Launch

_GROUP = 512
_UNITS = (32, 16)
"""Units of the layer per group, by preference."""
_MIN_SIZE = 96
"""Minimum units of a layer for which reading the weight in each step takes longer than an exchange between groups."""
_WEIGHTS = 64
"""Maximum weights in a work-item's registers; the same number of registers remains for the rest."""
_COLUMNS = 4
"""Columns of the weight per work-item, in the gradient."""
_MAX_ROWS = 4


@dataclass(frozen=True, slots=True)
class ResidentShares:
    """Division of a layer among groups: `shares` groups of `units` units each process `rows` sequences."""

    units: int
    rows: int
    shares: int
    slices: int
    terms: int

    @property
    def definitions(self) -> dict[str, str | int | bool]:
        return {"ROWS": self.rows, "UNITS": self.units, "SLICES": self.slices, "TERMS": self.terms}


def shares(runtime: Runtime, p: LayerSteps, *, gradient: bool) -> ResidentShares | None:
    """Return the division of a layer among groups; None if the device cannot hold it."""
    if not runtime.features.resident_groups or p.size < _MIN_SIZE or p.tensors["weight"][1].strides[1] != 1:
        return None
    for units in _UNITS:
        columns = _COLUMNS if gradient else 1
        slices = _GROUP // (units // columns)
        terms = round_up(ceil_div(p.size * (p.gates if gradient else 1), slices), 4)
        count = ceil_div(p.size, units)
        clusters = runtime.features.compute_units // count
        if terms * (columns if gradient else p.gates) > _WEIGHTS or not clusters:
            continue
        rows = power_of_two_at_least(ceil_div(p.batch, clusters))
        if rows <= _MAX_ROWS:
            return ResidentShares(units, rows, count, slices, terms)
    return None


def forward(runtime: Runtime, p: LayerSteps, division: ResidentShares) -> Launch:
    """Build the launch of a layer."""
    definitions = p.forward_definitions()
    return _launch(runtime, "recurrent/resident_steps", p, division, definitions, p.steps_args(), p.size)


def gradient(runtime: Runtime, p: LayerSteps, division: ResidentShares) -> Launch:
    """Build the launch of the sequential part of a layer's gradient."""
    definitions: dict[str, str | int | bool] = {"CELL": p.cell}
    args = p.steps_grad_args()
    return _launch(runtime, "recurrent/resident_steps_grad", p, division, definitions, args, p.gates * p.size)


def _launch(
    runtime: Runtime,
    kernel: str,
    p: LayerSteps,
    division: ResidentShares,
    definitions: dict[str, str | int | bool],
    args: Arguments,
    exchanged: int,
) -> Launch:
    """Build a launch whose groups exchange `exchanged` values per sequence and step, in zero-initialized memory."""
    at = p.first_workspace
    bound: Arguments = {**args, "weight": p.weight_rows(), "exchange": Workspace(at), "shares": division.shares}
    groups = ceil_div(p.batch, division.rows) * division.shares
    run = runtime.launch(kernel, {**definitions, **division.definitions}, bound, (groups * _GROUP,), (_GROUP,))
    values = contiguous(dtypes.int64, (2 * p.batch * exchanged,))
    return LaunchSequence((copy.fill_workspace(runtime, values, at), run), (values.nbytes,))
