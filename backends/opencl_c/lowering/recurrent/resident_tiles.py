"""Persistent recurrent layers on GPUs that co-schedule all groups: the weight is distributed over local memories.

For layers that are too large for registers (`resident_steps`). Groups multiply tiles of sequences as ordinary products
do, and wait for each other after each step. All groups are resident, because each one occupies a compute unit's local
memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Workspace
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.recurrent.problem import LayerSteps
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.layout import contiguous
from polyhal.hal.protocol import Launch

_GROUP = 256
_UNITS, _GRAD_COLUMNS = 8, 32
"""Units per group in the forward pass, with all their gates, and columns per group in the gradient, of a single gate."""
_BLOCK = 64
"""Sequences per warp."""
_TERMS = 64
"""Required divisor of a layer's units, the terms of its products: slices of eight terms, at most eight slices."""
_STAGED = 64 << 10
"""Bytes of local memory in addition to the weight."""
_MIN_BATCH = 16
"""Minimum sequences; with fewer, most of a tile would be padding."""
_MAX_PARTS = 2
"""Maximum tiles per group and step: with more, ordinary products fill the device."""


@dataclass(frozen=True, slots=True)
class ResidentTiles:
    """Division of a layer: each of `clusters` clusters of `shares` groups has `parts` tiles of `64 * blocks` sequences."""

    blocks: int
    shares: int
    clusters: int
    parts: int

    @property
    def rows(self) -> int:
        """Sequences of all tiles."""
        return _BLOCK * self.blocks * self.clusters * self.parts


def tiles(runtime: Runtime, p: LayerSteps, *, gradient: bool) -> ResidentTiles | None:
    """Return the division of a layer; None if the device cannot hold it, or for too few or too many sequences."""
    features = runtime.features
    if not features.resident_groups or features.max_group_size < _GROUP:
        return None
    if p.batch < _MIN_BATCH or p.tensors["weight"][1].strides[1] != 1:
        return None
    columns = _GRAD_COLUMNS if gradient else _UNITS * p.gates
    if p.size % _TERMS or 4 * p.size * columns + _STAGED > features.static_local_memory:
        return None
    shares = p.size // _GRAD_COLUMNS * p.gates if gradient else p.size // _UNITS
    most = features.compute_units // shares
    if not most:
        return None
    blocks = 2 if p.batch > _BLOCK * most else 1
    needed = ceil_div(p.batch, _BLOCK * blocks)
    parts = ceil_div(needed, most)
    return ResidentTiles(blocks, shares, ceil_div(needed, parts), parts) if parts <= _MAX_PARTS else None


def forward(runtime: Runtime, p: LayerSteps, division: ResidentTiles) -> Launch:
    """Build the launch of a layer."""
    definitions = p.forward_definitions()
    return _launch(runtime, "recurrent/resident_tiles", p, division, definitions, p.steps_args(), 2 * p.size, 1)


def gradient(runtime: Runtime, p: LayerSteps, division: ResidentTiles) -> Launch:
    """Build the launch of the sequential part of a layer's gradient."""
    definitions: dict[str, str | int | bool] = {"CELL": p.cell}
    args = p.steps_grad_args()
    return _launch(runtime, "recurrent/resident_tiles_grad", p, division, definitions, args, 3 * p.gates * p.size, 2)


def _launch(
    runtime: Runtime,
    kernel: str,
    p: LayerSteps,
    division: ResidentTiles,
    definitions: dict[str, str | int | bool],
    args: Arguments,
    exchanged: int,
    counts: int,
) -> Launch:
    """Build a launch whose groups exchange `exchanged` values per sequence and have `counts` counters each, initially 0."""
    at = p.first_workspace
    groups = division.shares * division.clusters
    bound: Arguments = {
        **args,
        "weight": p.weight_rows(),
        "exchange": Workspace(at),
        "flags": Workspace(at + 1),
        "shares": division.shares,
        "parts": division.parts,
    }
    definitions = {
        **definitions,
        "TENSOR_CORES": runtime.features.tensor_cores,
        "ROW_BLOCKS": division.blocks,
        "TERMS": p.size,
    }
    run = runtime.launch(kernel, definitions, bound, (groups * _GROUP,), (_GROUP,))
    flags = contiguous(dtypes.int32, (groups * counts,))
    clear = copy.fill_workspace(runtime, flags, at + 1)
    return LaunchSequence((clear, run), (4 * division.rows * exchanged, flags.nbytes))
