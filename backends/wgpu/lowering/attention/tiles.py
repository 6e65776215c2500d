"""Attention on GPUs, in tiles of workgroup memory. Kernels: shaders/wgsl/attention/tiles.wgsl and tiles_grad.wgsl."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.wgpu.lowering.attention.arguments import VECTOR, Call, Strategy
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.protocol import Declined

_VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class Tiles:
    """A workgroup computes `rows` by `columns` scores at a time, an invocation `height` by `width` of them."""

    rows: int
    columns: int
    height: int = 4
    width: int = 4

    @property
    def lanes(self) -> int:
        """Invocations that share a row."""
        return self.columns // self.width

    @property
    def group(self) -> int:
        """Invocations of a workgroup."""
        return self.rows // self.height * self.lanes


FORWARD = (Tiles(64, 64), Tiles(64, 32), Tiles(32, 32), Tiles(32, 16), Tiles(16, 16))
"""Forward tiles in order of preference; the first that fits into workgroup memory is chosen."""
BACKWARD = (Tiles(64, 32), Tiles(32, 32), Tiles(32, 16), Tiles(16, 16))


def forward(runtime: Runtime, call: Call) -> Strategy | Declined:
    """Choose the tiles of the forward kernel."""
    return _choose(runtime, call, FORWARD, _forward_vectors)


def backward(runtime: Runtime, call: Call) -> Strategy | Declined:
    """Choose the tiles of the gradient kernels."""
    return _choose(runtime, call, BACKWARD, _backward_vectors)


def _choose(
    runtime: Runtime, call: Call, candidates: Sequence[Tiles], vectors: Callable[[Tiles, int, int], int]
) -> Strategy | Declined:
    features = runtime.features
    for tiles in candidates:
        nbytes = (vectors(tiles, call.quads, call.value_quads) + _scratch(runtime, tiles)) * _VECTOR_BYTES
        if nbytes <= features.local_memory and tiles.group <= features.max_group_size:
            sizes = {"ROWS": tiles.rows, "COLUMNS": tiles.columns, "R": tiles.height, "C": tiles.width}
            variables = {**group_reduce.definitions(runtime, tiles.lanes, tiles.group), **sizes}
            return Strategy("tiles", variables, tiles.rows)
    return Declined("the device has too little workgroup memory")


def _pitch(quads: int) -> int:
    """Return the distance between rows of a tile, in vectors."""
    return round_up(quads, 8)


def _padded(quads: int, tiles: Tiles) -> int:
    """Return the vectors per row, padded so that all lanes of a row process the same number."""
    return _pitch(round_up(quads, tiles.lanes))


def _scratch(runtime: Runtime, tiles: Tiles) -> int:
    """Return the vectors of workgroup memory that row reductions need if a row exceeds a subgroup."""
    features = runtime.features
    return 0 if features.subgroups and features.subgroup_sizes[0] >= tiles.lanes else 2 * ceil_div(tiles.group, VECTOR)


def _forward_vectors(tiles: Tiles, quads: int, value_quads: int) -> int:
    weights = tiles.rows * _pitch(tiles.columns // VECTOR)
    keys = max(tiles.columns * _pitch(quads), weights)
    return tiles.rows * _pitch(quads) + keys + tiles.columns * _padded(value_quads, tiles)


def _backward_vectors(tiles: Tiles, quads: int, value_quads: int) -> int:
    per_row = _padded(quads, tiles) + _padded(value_quads, tiles)
    return (tiles.rows + tiles.columns) * per_row + tiles.rows * _pitch(tiles.columns // VECTOR)
