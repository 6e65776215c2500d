"""How reductions are shared out among work-items, and the numbers that describe their axes to kernels."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Constant
from polyhal.backends.common.launching.split_k import split_count
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.opencl.launch import Parameter
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.kernels.tuning import Family, size_class

STRIPS = 8
"""Vectors side by side that a CPU takes from each row when it reduces columns."""


@dataclass(frozen=True, slots=True)
class Split:
    """How a reduction with few results is shared out."""

    workers: int
    """Per compute unit, to have all of them busy: work-items on a CPU, groups elsewhere."""


SPLIT = Family[Split]("reduce", {"workers": (1, 2, 4, 8, 16, 32, 64, 128, 256)})

_CPU_WORKERS = 4
_ROW_WORKERS = 64
_COLUMN_WORKERS = 4
_TERMS_TOGETHER = 16384
"""Terms that a work-item of a CPU takes at least where there are many results, so that starting it costs little."""
_SHORTEST_PART = 1024
"""Terms below which a second pass costs more than it wins."""
_SHORTEST_COLUMN = 32
"""The same for the columns of a GPU, where every work-item has one part."""
_FEW_TERMS, _SMALL_COLUMNS = 512, 1 << 18
"""Terms of a column, and of all, up to which work-items of a GPU share each column as they share rows: in one launch."""
_TERMS_EACH = 16
"""Terms that a work-item of a GPU takes of a row before more share it: four vectors under way."""
_SLICES = 4
_MOST_PARTS = 16384
_VECTORS_TOGETHER = 32
"""Vectors that a work-item of a GPU reads one after the other before its group goes on elsewhere."""


def parts(runtime: Runtime, axes: Axes, row_workers: int = _ROW_WORKERS) -> int:
    """Into how many parts the terms of each result are divided; `row_workers` are a GPU's default along rows."""
    features = runtime.features
    if features.cpu:
        default, shortest = _CPU_WORKERS, _SHORTEST_PART
        busy = axes.results if axes.by_rows else ceil_div(axes.results, STRIPS * features.vector_width)
    elif axes.by_rows:
        default, shortest = row_workers, _TERMS_EACH * features.group_size
        busy = ceil_div(axes.results * lanes(runtime, axes.length), features.group_size)
    else:
        default, shortest = _COLUMN_WORKERS, _SHORTEST_COLUMN
        busy = ceil_div(axes.results, 4 * features.group_size)
    choice = runtime.tuning.choose(SPLIT, size_class(axes.results, axes.length), Split(default))
    return split_count(busy, choice.workers * features.compute_units, axes.length // shortest, _MOST_PARTS)


def few_terms(runtime: Runtime, axes: Axes) -> bool:
    """Whether a second pass over columns costs a GPU more than reading them out of line."""
    if runtime.features.cpu or axes.by_rows:
        return False
    return axes.length <= _FEW_TERMS and axes.length * axes.results <= _SMALL_COLUMNS


def slices(runtime: Runtime, count: int) -> int:
    """Work-items of a group that share each of `count` parts of a column, so that fewer are left for the second pass."""
    return _SLICES if not runtime.features.cpu and count >= _SLICES and runtime.features.group_size >= _SLICES else 1


def lanes(runtime: Runtime, length: int) -> int:
    """Work-items that share a row."""
    if runtime.features.cpu:
        return 1
    return min(runtime.features.group_size, power_of_two_at_least(ceil_div(length, _TERMS_EACH)))


def tasks_each(runtime: Runtime, tasks: int, terms: int) -> int:
    """Parts of `terms` terms that a work-item takes one after the other: some on a CPU, as far as all its cores stay busy."""
    if not runtime.features.cpu:
        return 1
    return max(1, min(_TERMS_TOGETHER // max(terms, 1), ceil_div(tasks, _CPU_WORKERS * runtime.features.compute_units)))


def row_group(runtime: Runtime, tasks: int) -> int:
    """Work-items in a group that walks rows."""
    return runtime.features.group_size if not runtime.features.cpu else 64 if tasks >= 8192 else 1


def row_width(runtime: Runtime, aligned: bool, axes: Axes, terms_each: int) -> tuple[int, bool]:
    """Elements read at once along rows, and whether they lie at multiples of that; `terms_each` are those of a work-item."""
    (length, step) = axes.reduced[1]
    if step != 1:
        return 1, False
    if runtime.features.cpu:
        width = runtime.features.vector_width
        return (width if length >= width else 1), False
    steps = (axes.kept[0][1], axes.kept[1][1], axes.reduced[0][1], length)
    whole = aligned and all(s % 4 == 0 for s in steps) and terms_each >= 4
    return (4 if whole else 1), whole


def row_piece(runtime: Runtime, axes: Axes, count: int, step: int) -> int:
    """Neighbouring terms that one of `count` parts of a row takes together; `step` are those that it reads at once."""
    part = round_up(ceil_div(axes.length, count), step)
    if runtime.features.cpu or axes.reduced[0][0] > 1:
        return part
    return min(part, _VECTORS_TOGETHER * step)


def geometry(axes: Axes, count: int, piece: int) -> list[Parameter]:
    """The numbers of reduction/rows.cl and its relatives, for `count` parts."""
    (k0, k0s), (k1, k1s) = axes.kept
    (_, r0s), (r1, r1s) = axes.reduced
    return [
        Constant(k0, "ulong"), Constant(k0s, "long"), Constant(k1, "ulong"), Constant(k1s, "long"),
        Constant(r0s, "long"), Constant(r1, "ulong"), Constant(r1s, "long"),
        Constant(axes.length, "ulong"), Constant(count, "ulong"), Constant(piece, "ulong"),
    ]  # fmt: skip
