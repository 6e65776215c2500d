"""Sorting on GPUs, by digits: short rows within a group's local memory, long ones in passes over them all.

Where few of many elements are wanted, most are left out first: the first ones of all lie in the pieces that begin with them
(see shaders/opencl/sort/top_k.cl), and so does a problem of the size of a square root.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.opencl.capabilities import OpenCLFeatures
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.lowering.reduction.scan import scan
from polyhal.backends.opencl.lowering.sort.problem import FIRST_WORKSPACE, INDICES, VALUES, Sorting, X
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal import dtypes
from polyhal.hal.kernels.tuning import Family, size_class
from polyhal.hal.layout import Ref, contiguous
from polyhal.hal.protocol import Declined, Launch

_DIGITS = 256
_DIGIT_BITS = 8
_FEW = 16
"""Elements of a row for each that is kept, from which on pieces are worth their launches."""
_MOST = 1024
"""Elements that may be kept for it."""
_PIECE_EACH, _TAKEN_EACH = 4, 16
"""Elements that a work-item looks at in a piece, and that it copies of those that are taken."""
_LEAST_PIECE, _MOST_PIECE = 8, 1024
_MOST_LANES = 32
_GROUP = 128
"""Work-items that look for the first elements of pieces together."""
_LONG_TILE = 256 * 11
"""Elements of a tile in passes over long rows. Tiles of twice and of two thirds as many were as fast, larger ones slower."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a group sorts in its local memory, and how many groups each compute unit gets for long rows."""

    group: int
    each: int
    """Elements of a work-item; odd, and at most 15 (see sort/tile_rounds.h)."""
    groups_per_unit: int = 16

    @property
    def size(self) -> int:
        return self.group * self.each

    def local_memory(self, itemsize: int) -> int:
        """Bytes: elements and words, counters of digits, sums; and where runs of digits begin, in passes over long rows."""
        return self.size * (itemsize + 4) + 4 * (9 * self.group + 2 * self.group + 2 * _DIGITS)

    def fits(self, features: OpenCLFeatures, itemsize: int) -> bool:
        """Whether a device has room for it."""
        return self.group <= features.max_group_size and self.local_memory(itemsize) <= features.static_local_memory


_TILES = tuple(
    Tile(group, each)
    for group, each in (
        (64, 3), (64, 7), (64, 11), (64, 15), (128, 11), (128, 15), (256, 11), (256, 15), (512, 11), (512, 15)
    )
)  # fmt: skip
"""By size."""

DIGITS = Family[Tile](
    "sort_digits", {"group": (128, 256, 512), "each": (7, 11, 15), "groups_per_unit": (4, 8, 16)},
    lambda features, tile: tile.fits(features, 8),
)  # fmt: skip


def suits(job: Sorting) -> bool:
    """Whether the device is a GPU with room for the smallest tile."""
    features = job.runtime.features
    return not features.cpu and bool(_fitting(features, job.dtype.itemsize))


def _fitting(features: OpenCLFeatures, itemsize: int) -> list[Tile]:
    return [t for t in _TILES if t.fits(features, itemsize)]


def build(job: Sorting) -> Launch:
    """Raises KernelBuildError."""
    steps = _Steps(job)
    steps.order(None, job.length, None)
    if len(steps.launches) == 1:
        return steps.launches[0]
    return LaunchSequence(job.name, steps.launches, tuple(steps.workspace))


@dataclass(frozen=True, slots=True)
class _Elements:
    """Elements of all rows in temporary memory: their bits, and their numbers in what they were taken from."""

    bits: Workspace
    numbers: Workspace


_Place = _Elements | None
"""None: x, as a source; the results, as a target."""


class _Steps:
    """The launches that sort, and their temporary memory."""

    def __init__(self, job: Sorting) -> None:
        self._job = job
        self.launches: list[Launch] = []
        self.workspace: list[int] = []
        self._tiles = _fitting(job.runtime.features, job.dtype.itemsize)

    def order(self, source: _Place, length: int, target: _Place) -> None:
        """The first elements of the rows of a source, in order."""
        if length <= self._tiles[-1].size:
            self._within_tiles(source, length, target)
        elif self._job.keep <= min(length // _FEW, _MOST):
            self._by_pieces(source, length, target)
        else:
            self._by_digits(source, length, target)

    def _within_tiles(self, source: _Place, length: int, target: _Place) -> None:
        tile = next(t for t in self._tiles if t.size >= length)
        keep = [Constant(self._job.keep, "uint")]
        self._launch("sort_tiles", "sort/tiles", tile, source, target, length, self._job.rows, keep)

    def _by_digits(self, source: _Place, length: int, target: _Place) -> None:
        job = self._job
        default = next(t for t in reversed(self._tiles) if t.size <= _LONG_TILE)
        tile = job.runtime.tuning.choose(DIGITS, size_class(job.rows, length), default)
        wanted = max(1, tile.groups_per_unit * job.runtime.features.compute_units // job.rows)
        part = round_up(ceil_div(length, min(wanted, ceil_div(length, tile.size))), tile.size)
        parts = ceil_div(length, part)
        counts = self._allocate(4 * job.rows * _DIGITS * parts)
        passes = job.dtype.itemsize * 8 // _DIGIT_BITS
        between = [self._elements(length) for _ in range(min(passes - 1, 2))]
        for turn in range(passes):
            last = turn == passes - 1
            to = target if last else between[turn % 2]
            numbers: list[Parameter] = [Constant(v, "uint") for v in (parts, part, _DIGIT_BITS * turn)]
            groups = job.rows * parts
            self._launch(
                "count_digits", "sort/radix", tile, source, to, length, groups, numbers, [counts], writes=False
            )
            if parts > 1:
                self.launches.append(_running_sums(job.runtime, job.rows * _DIGITS, parts, counts))
            moved = [Constant(job.keep if last else length, "uint"), *numbers]
            self._launch("move_digits", "sort/radix", tile, source, to, length, groups, moved, [counts])
            source = to

    def _by_pieces(self, source: _Place, length: int, target: _Place) -> None:
        job = self._job
        piece = power_of_two_at_least(math.isqrt(length // job.keep))
        piece = min(max(piece, _LEAST_PIECE), _MOST_PIECE)
        lanes = min(piece // _PIECE_EACH, _MOST_LANES)
        pieces = ceil_div(length, piece)
        best, chosen = self._elements(pieces), self._elements(job.keep)
        taken = self._elements(job.keep * piece)
        tile = Tile(min(_GROUP, job.runtime.features.max_group_size), 1)
        more: dict[str, str | int | bool] = {"PIECE": piece, "LANES": lanes, "MOST": _MOST}
        groups = ceil_div(job.rows * pieces * lanes, tile.group)
        count: list[Parameter] = [Constant(pieces, "uint")]
        self._launch("best_of_pieces", "sort/top_k", tile, source, best, length, groups, count, more=more)
        self.order(best, pieces, chosen)
        groups = ceil_div(job.keep * piece, tile.group * _TAKEN_EACH)
        numbers: list[Parameter] = [Constant(job.keep, "uint"), Constant(groups, "uint")]
        self._launch(
            "take_pieces", "sort/top_k", tile, source, taken, length, job.rows * groups, numbers, [chosen.numbers], more
        )  # fmt: skip
        self.order(taken, job.keep * piece, target)

    def _launch(
        self, kernel: str, file: str, tile: Tile, source: _Place, target: _Place, length: int, groups: int,
        numbers: Sequence[Parameter], after: Sequence[Parameter] = (), more: Mapping[str, str | int | bool] | None = None,
        *, writes: bool = True,
    ) -> None:  # fmt: skip
        """One kernel: its source and, if it `writes` to it, its target; what follows `after` them; and its last parameters."""
        job = self._job
        ends: list[Parameter] = [Tensor(X)] if source is None else [source.bits, source.numbers]
        strides = job.strides(X) if source is None else []
        if writes:
            ends += [Tensor(VALUES), Tensor(INDICES)] if target is None else [target.bits, target.numbers]
            strides += job.strides(VALUES, INDICES) if target is None else []
        definitions = {
            **job.definitions, "GROUP": tile.group, "EACH": tile.each, "FIRST": source is None, "LAST": target is None,
            **(more or {}),
        }  # fmt: skip
        self.launches.append(
            job.runtime.launch(
                job.name, file, definitions, [*ends, *after, *job.numbers(length), *strides, *numbers], (groups * tile.group,),
                (tile.group,), kernel=kernel,
            )
        )  # fmt: skip

    def _allocate(self, nbytes: int) -> Workspace:
        self.workspace.append(nbytes)
        return Workspace(FIRST_WORKSPACE + len(self.workspace) - 1)

    def _elements(self, length: int) -> _Elements:
        count = self._job.rows * length
        return _Elements(self._allocate(count * self._job.dtype.itemsize), self._allocate(count * 4))


def _running_sums(runtime: Runtime, rows: int, length: int, place: Workspace) -> Launch:
    """Sums in place of counts (rows, length): each becomes that of all up to itself."""
    spec = contiguous(dtypes.int32, (rows, length))
    launch = scan(runtime, "sum", spec, spec, 1, spec.dtype)
    assert not isinstance(launch, Declined)
    assert not launch.workspace
    sums: Callable[..., None] = launch

    def run(*args: Any) -> None:
        counts = Ref(args[place.index], spec)
        sums(counts, counts)

    return LaunchSequence("sort", (run,))
