"""Radix sort on GPUs: short rows within a group's local memory, long ones in passes over global memory.

A pass reads long rows once where groups may wait for each other, and twice elsewhere.

If few of many elements are kept, most are pruned first: all results are in the pieces with the best minima (see
shaders/opencl/sort/top_k.cl), which reduces the problem to about the square root of its size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Arguments, LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.lowering.pointwise import copy
from polyhal.backends.opencl_c.lowering.reduction.scan import scan
from polyhal.backends.opencl_c.lowering.sort.problem import FIRST_WORKSPACE, INDICES, VALUES, SortProblem, X
from polyhal.backends.opencl_c.lowering.support.group_reduce import exchange_of_words
from polyhal.backends.opencl_c.ptx import WHOLE_PROGRAM
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.core.kernels.tuning import Family, size_class
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch

_DIGITS = 256
_DIGIT_BITS = 8
_PRUNE_FROM = 16
"""Minimum ratio of a row's elements to kept ones for which pruning is worth its launches."""
_MAX_PRUNED_KEEP = 1024
"""Maximum kept elements for pruning."""
_PIECE_EACH, _COPIED_EACH = 4, 16
"""Elements of a piece that a work-item compares, and elements that it copies."""
_MIN_PIECE, _MAX_PIECE = 8, 1024
_MAX_LANES = 32
_PRUNING_GROUP = 128
"""Work-items of a group that finds or copies pieces."""
_LONG_TILE = 256 * 11
"""Elements of a tile in passes over long rows.

Tiles of twice and two thirds of this size were as fast, larger ones slower.
"""
_COUNTING_GROUPS = 8
"""Groups per compute unit that count digits."""


@dataclass(frozen=True, slots=True)
class SortTile:
    """Elements that a group sorts in local memory, and the number of groups per compute unit for long rows."""

    group: int
    each: int
    """Elements per work-item, odd and at most 15 (see sort/tile_rounds.h)."""
    groups_per_unit: int = 16

    @property
    def size(self) -> int:
        return self.group * self.each

    def local_memory(self, itemsize: int) -> int:
        """Return the bytes of elements and words, counters, scan; for long rows also digit positions and starts of runs."""
        return self.size * (itemsize + 4) + 4 * (9 * self.group + 2 * self.group + 2 * _DIGITS)

    def fits(self, features: KernelFeatures, itemsize: int) -> bool:
        """Return whether a device has enough local memory and large enough groups."""
        return self.group <= features.max_group_size and self.local_memory(itemsize) <= features.static_local_memory


_TILES = tuple(
    SortTile(group, each)
    for group, each in (
        (64, 3),
        (64, 7),
        (64, 11),
        (64, 15),
        (128, 11),
        (128, 15),
        (256, 11),
        (256, 15),
        (512, 11),
        (512, 15),
    )
)
"""Candidates in order of size."""

_SWEEPING_TILE = SortTile(256, 16)
"""Tile of passes that read each element once. Groups of 512 took 7 to 30 % longer on an H200."""

DIGITS = Family[SortTile](
    "sort_digits",
    {"group": (128, 256, 512), "each": (7, 11, 15), "groups_per_unit": (4, 8, 16)},
    lambda features, tile: tile.fits(features, 8),
)


def fits(problem: SortProblem) -> bool:
    """Return whether the device is a GPU with enough local memory for the smallest tile."""
    features = problem.runtime.features
    return not features.cpu and bool(_fitting(features, problem.dtype.itemsize))


def _fitting(features: KernelFeatures, itemsize: int) -> list[SortTile]:
    return [t for t in _TILES if t.fits(features, itemsize)]


def build(problem: SortProblem) -> Launch:
    """Build the launches. Raises KernelBuildError."""
    builder = _RadixSort(problem)
    builder.sort(_X, problem.length, _RESULTS)
    if len(builder.launches) == 1:
        return builder.launches[0]
    return LaunchSequence(builder.launches, tuple(builder.workspace))


@dataclass(frozen=True, slots=True)
class _Elements:
    """Bits of elements and their positions in the original rows, as the source or the target of a kernel."""

    source: Arguments
    target: Arguments
    positions: Workspace | None = None
    """Workspace with the positions; None for x and the results."""

    @classmethod
    def in_workspace(cls, bits: Workspace, positions: Workspace) -> _Elements:
        source: Arguments = {"source_bits": bits, "source_positions": positions}
        target: Arguments = {"target_bits": bits, "target_positions": positions}
        return cls(source, target, positions)


_X = _Elements({"x": Tensor(X)}, {})
_RESULTS = _Elements({}, {"values": Tensor(VALUES), "indices": Tensor(INDICES)})


class _RadixSort:
    """The launches that sort, and their workspace."""

    def __init__(self, problem: SortProblem) -> None:
        self._problem = problem
        self.launches: list[Launch] = []
        self.workspace: list[int] = []
        self._tiles = _fitting(problem.runtime.features, problem.dtype.itemsize)

    def sort(self, source: _Elements, length: int, target: _Elements) -> None:
        """Append launches that write the first elements, in order, of each row of `length` elements."""
        keep = self._problem.keep
        if length <= self._tiles[-1].size:
            tile = next(t for t in self._tiles if t.size >= length)
            args = {**source.source, **target.target, **self._problem.geometry(length, keep)}
            self._launch("sort/tiles", "sort_tiles", tile, args, self._problem.rows)
        elif keep <= min(length // _PRUNE_FROM, _MAX_PRUNED_KEEP):
            self._sort_pruned(source, length, target)
        elif (sweeping := self._sweeping_tile(length)) is not None:
            self._sort_in_one_sweep(source, length, target, sweeping)
        else:
            self._sort_by_digits(source, length, target)

    def _sort_in_one_sweep(self, source: _Elements, length: int, target: _Elements, tile: SortTile) -> None:
        """Append passes that read each element once (see shaders/opencl/sort/one_sweep.cl)."""
        p = self._problem
        tiles, passes = ceil_div(length, tile.size), p.dtype.itemsize * 8 // _DIGIT_BITS
        state = p.rows * passes * _DIGITS + passes * (1 + p.rows * tiles * _DIGITS)
        words = contiguous(dtypes.int32, (state,))
        place = self._allocate(words.nbytes)
        buffers = [self._elements(length) for _ in range(min(passes - 1, 2))]
        self.launches.append(copy.fill_workspace(p.runtime, words, place.index))
        parts = max(1, min(ceil_div(length, tile.size), _COUNTING_GROUPS * p.runtime.features.compute_units // p.rows))
        defined = {"PASSES": passes, "EXCHANGE": exchange_of_words(p.runtime)}
        args = {**source.source, "state": place, "parts": parts, "part_length": ceil_div(length, parts)}
        args |= p.geometry(length, p.keep)
        self._launch("sort/one_sweep", "digit_counts", tile, args, p.rows * parts, defined, last=target is _RESULTS)
        for i in range(passes):
            last = i == passes - 1
            to = target if last else buffers[i % 2]
            args = {**source.source, **to.target, "state": place, "tiles": tiles, "pass": i}
            args |= p.geometry(length, p.keep if last else length)
            self._launch("sort/one_sweep", "one_sweep", tile, args, p.rows * tiles, defined)
            source = to

    def _sort_by_digits(self, source: _Elements, length: int, target: _Elements) -> None:
        p = self._problem
        default = next(t for t in reversed(self._tiles) if t.size <= _LONG_TILE)
        tile = p.runtime.tuning.choose(DIGITS, size_class(p.rows, length), default)
        max_parts = max(1, tile.groups_per_unit * p.runtime.features.compute_units // p.rows)
        part_length = round_up(ceil_div(length, min(max_parts, ceil_div(length, tile.size))), tile.size)
        parts = ceil_div(length, part_length)
        counts = self._allocate(4 * p.rows * _DIGITS * parts)
        passes = p.dtype.itemsize * 8 // _DIGIT_BITS
        buffers = [self._elements(length) for _ in range(min(passes - 1, 2))]
        for i in range(passes):
            last = i == passes - 1
            to = target if last else buffers[i % 2]
            digits = {"parts": parts, "part_length": part_length, "shift": _DIGIT_BITS * i}
            args = {**source.source, **digits, **p.geometry(length, p.keep if last else length)}
            self._launch(
                "sort/radix", "radix_histogram", tile, {**args, "counts": counts}, p.rows * parts, last=to is _RESULTS
            )
            if parts > 1:
                self.launches.append(_inclusive_scan(p.runtime, p.rows * _DIGITS, parts, counts))
            self._launch("sort/radix", "radix_scatter", tile, {**args, **to.target, "totals": counts}, p.rows * parts)
            source = to

    def _sweeping_tile(self, length: int) -> SortTile | None:
        """Return the tile of passes that read each element once; None where groups may not wait for each other."""
        features, tile = self._problem.runtime.features, _SWEEPING_TILE
        size = tile.size * max(4, self._problem.dtype.itemsize) + 4 * (
            _DIGITS * (tile.group // 32 + 1) + 3 * tile.group
        )
        able = features.forward_progress and tile.group <= features.max_group_size
        return tile if able and size <= features.static_local_memory and length < 1 << 30 else None

    def _sort_pruned(self, source: _Elements, length: int, target: _Elements) -> None:
        p = self._problem
        piece = power_of_two_at_least(math.isqrt(length // p.keep))
        piece = min(max(piece, _MIN_PIECE), _MAX_PIECE)
        lanes = min(piece // _PIECE_EACH, _MAX_LANES)
        pieces = ceil_div(length, piece)
        minima, chosen, pruned = self._elements(pieces), self._elements(p.keep), self._elements(p.keep * piece)
        tile = SortTile(min(_PRUNING_GROUP, p.runtime.features.max_group_size), 1)
        defined = {"PIECE": piece, "LANES": lanes, "MAX_KEEP": _MAX_PRUNED_KEEP}
        args = {**source.source, **p.geometry(length, p.keep)}
        groups = ceil_div(p.rows * pieces * lanes, tile.group)
        self._launch("sort/top_k", "piece_minima", tile, {**args, **minima.target, "pieces": pieces}, groups, defined)
        self.sort(minima, pieces, chosen)
        groups = ceil_div(p.keep * piece, tile.group * _COPIED_EACH)
        assert chosen.positions is not None
        args = {**args, **pruned.target, "chosen": chosen.positions, "groups": groups}
        self._launch("sort/top_k", "copy_pieces", tile, args, p.rows * groups, defined)
        self.sort(pruned, p.keep * piece, target)

    def _launch(
        self,
        file: str,
        kernel: str,
        tile: SortTile,
        args: Arguments,
        groups: int,
        more: Mapping[str, int] | None = None,
        *,
        last: bool | None = None,
    ) -> None:
        """Append a launch.

        FIRST and LAST follow from `args`; a kernel without a target uses `last`, to share its program.
        """
        definitions = {
            **self._problem.definitions,
            "GROUP": tile.group,
            "EACH": tile.each,
            "FIRST": "x" in args,
            "LAST": "values" in args if last is None else last,
            **(more or {}),
        }
        launch = self._problem.runtime.launch(
            file, definitions, args, (groups * tile.group,), (tile.group,), kernel=kernel, target=WHOLE_PROGRAM
        )
        self.launches.append(launch)

    def _allocate(self, nbytes: int) -> Workspace:
        self.workspace.append(nbytes)
        return Workspace(FIRST_WORKSPACE + len(self.workspace) - 1)

    def _elements(self, length: int) -> _Elements:
        """Allocate workspace for `length` elements per row."""
        count = self._problem.rows * length
        bits = self._allocate(count * self._problem.dtype.itemsize)
        return _Elements.in_workspace(bits, self._allocate(count * 4))


def _inclusive_scan(runtime: Runtime, rows: int, length: int, place: Workspace) -> Launch:
    """Build a launch that replaces counts (rows, length) by their inclusive scan along rows."""
    spec = contiguous(dtypes.int32, (rows, length))
    launch = scan(runtime, "sum", spec, spec, 1, spec.dtype)
    assert not isinstance(launch, Declined)
    assert not launch.workspace

    def run(*args: Any) -> None:
        counts = Ref(args[place.index], spec)
        launch(counts, counts)

    return SimpleLaunch(launch.name, run)
