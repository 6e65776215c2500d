"""Split-K of reductions, tile shapes, and kernels' geometry arguments."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, power_of_two_at_least, round_up
from polyhal.backends.common.launching.launch import Argument
from polyhal.backends.common.launching.split_k import split_count
from polyhal.backends.common.problems.reduction import Axes
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.core.kernels.tuning import Family, size_class

STRIPS = 8
"""Adjacent vectors that a CPU takes from each row when it reduces columns."""


@dataclass(frozen=True, slots=True)
class Split:
    """Split of a reduction with few results."""

    workers: int
    """Work-items (CPU) or groups (GPU) per compute unit that keep it busy."""


SPLIT = Family[Split]("reduce", {"workers": (1, 2, 4, 8, 16, 32, 64, 128, 256)})

_CPU_WORKERS = 4
_ROW_WORKERS = 64
_COLUMN_WORKERS = 4
_CPU_TERMS = 16384
"""Minimum terms per work-item of a CPU if the results are many, to amortize its start."""
_MIN_SPLIT = 1024
"""Minimum terms of a split that saves more than its second pass costs."""
_MIN_COLUMN_SPLIT = 32
"""Minimum terms of a column's split on a GPU, where a work-item processes one split."""
_FEW_TERMS, _SMALL_COLUMNS = 512, 1 << 18
"""Maximum terms of a column, and of all columns, for which a GPU reduces columns as rows, in one launch."""
_TERMS_EACH = 16
"""Terms of a row per work-item of a GPU before further work-items share the row: four vectors in flight."""
_STREAMS, _STREAM_BYTES = 4, 8192
"""Parts of a split that a work-item of a CPU reads at the same time, and their minimum bytes: two pages, at whose ends the
processor's own prefetching stops."""
_SLICES = 4
_MAX_SPLITS = 16384
_CHUNK_VECTORS = 32
"""Vectors that a work-item of a GPU reads in sequence before its group moves to its next chunk."""


def split_terms(runtime: Runtime, axes: Axes, row_workers: int = _ROW_WORKERS) -> int:
    """Return the number of splits per result; `row_workers` is a GPU's default along rows."""
    features = runtime.features
    if features.cpu:
        default, min_terms = _CPU_WORKERS, _MIN_SPLIT
        busy = axes.results if axes.by_rows else ceil_div(axes.results, STRIPS * features.vector_width)
    elif axes.by_rows:
        default, min_terms = row_workers, _TERMS_EACH * features.group_size
        busy = ceil_div(axes.results * lanes(runtime, axes.length), features.group_size)
    else:
        default, min_terms = _COLUMN_WORKERS, _MIN_COLUMN_SPLIT
        busy = ceil_div(axes.results, 4 * features.group_size)
    choice = runtime.tuning.choose(SPLIT, size_class(axes.results, axes.length), Split(default))
    return split_count(busy, choice.workers * features.compute_units, axes.length // min_terms, _MAX_SPLITS)


def few_terms(runtime: Runtime, axes: Axes) -> bool:
    """Return whether a second pass over columns costs a GPU more than strided reads."""
    if runtime.features.cpu or axes.by_rows:
        return False
    return axes.length <= _FEW_TERMS and axes.length * axes.results <= _SMALL_COLUMNS


def slices(runtime: Runtime, count: int) -> int:
    """Return how many work-items of a group share each of `count` splits of a column, for a shorter second pass."""
    return _SLICES if not runtime.features.cpu and count >= _SLICES and runtime.features.group_size >= _SLICES else 1


def lanes(runtime: Runtime, length: int) -> int:
    """Return how many work-items share a row."""
    if runtime.features.cpu:
        return 1
    return min(runtime.features.group_size, power_of_two_at_least(ceil_div(length, _TERMS_EACH)))


def tasks_each(runtime: Runtime, tasks: int, terms: int) -> int:
    """Return how many splits of `terms` terms a work-item processes: several on a CPU, if all cores stay busy."""
    if not runtime.features.cpu:
        return 1
    return max(1, min(_CPU_TERMS // max(terms, 1), ceil_div(tasks, _CPU_WORKERS * runtime.features.compute_units)))


def row_group(runtime: Runtime, tasks: int) -> int:
    """Return the work-items of a group that reduces rows."""
    return runtime.features.group_size if not runtime.features.cpu else 64 if tasks >= 8192 else 1


def row_width(runtime: Runtime, aligned: bool, axes: Axes, terms_each: int) -> tuple[int, bool]:
    """Return the vector width along rows, and whether vectors are aligned; `terms_each` counts the terms per work-item."""
    (length, step) = axes.reduced[1]
    if step != 1:
        return 1, False
    if runtime.features.cpu:
        width = runtime.features.vector_width
        return (width if length >= width else 1), False
    distances = (axes.kept[0][1], axes.kept[1][1], axes.reduced[0][1], length)
    aligned_vectors = aligned and all(s % 4 == 0 for s in distances) and terms_each >= 4
    return (4 if aligned_vectors else 1), aligned_vectors


def streams(runtime: Runtime, axes: Axes, width: int, terms: int, itemsize: int) -> int:
    """Return the number of parts of a split of `terms` terms that a work-item of a CPU reads at the same time."""
    if not runtime.features.cpu or width == 1:
        return 1
    return _STREAMS if min(terms, axes.reduced[1][0]) * itemsize >= _STREAMS * _STREAM_BYTES else 1


def row_chunk(runtime: Runtime, axes: Axes, count: int, step: int) -> int:
    """Return the contiguous terms that one of `count` splits of a row processes at a time, in reads of `step` terms."""
    terms = round_up(ceil_div(axes.length, count), step)
    if runtime.features.cpu or axes.reduced[0][0] > 1:
        return terms
    return min(terms, _CHUNK_VECTORS * step)


def geometry(axes: Axes, count: int, chunk: int) -> dict[str, Argument]:
    """Return the members of ReductionGeometry (reduction/geometry.h), for `count` splits of each result."""
    (kept_outer, kept_outer_stride), (kept_inner, kept_inner_stride) = axes.kept
    (_, reduced_outer_stride), (reduced_inner, reduced_inner_stride) = axes.reduced
    return {
        "kept_outer": kept_outer,
        "kept_inner": kept_inner,
        "reduced_inner": reduced_inner,
        "length": axes.length,
        "splits": count,
        "chunk": chunk,
        "kept_outer_stride": kept_outer_stride,
        "kept_inner_stride": kept_inner_stride,
        "reduced_outer_stride": reduced_outer_stride,
        "reduced_inner_stride": reduced_inner_stride,
    }
