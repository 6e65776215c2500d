"""Reductions over any axes: row or column reductions, in one pass or two.

If there are too few results to fill the device, or an operand exceeds the binding size limit, each result is reduced in
splits, and a second pass combines them. The splits depend on shapes and device only, so results are reproducible.
"""

from __future__ import annotations

import itertools
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.split_k import split_count
from polyhal.backends.common.problems import reduction
from polyhal.backends.common.problems.reduction import Axes, Axis, Operation, ReductionBuilders
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.reduction import single_pass
from polyhal.backends.wgpu.lowering.reduction.arg import positions
from polyhal.backends.wgpu.lowering.reduction.single_pass import Operand, Target, column_width, partial_dtype, row_lanes
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import ALIGNMENT, Ref, Spec
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch

_MIN_TERMS = 32
"""Minimum terms per invocation for which a second pass is faster."""
_MAX_PARTIAL_BYTES = 8
"""Maximum bytes of a partial result."""

Window = tuple[int, Axis]
"""The start of a window of an axis, and the window as an axis."""


def _values(runtime: Runtime, op: Operation, x: Spec, axes: Axes, out: Spec) -> Launch:
    lengths, splits = _windows_and_splits(runtime, x, axes, out)
    windows = [list(_windows(axis, n)) for axis, n in zip((*axes.kept, *axes.reduced), lengths, strict=True)]
    term_windows = list(itertools.product(*windows[2:]))
    total = len(term_windows) * splits
    width = axes.kept[1][0]
    whole = len(term_windows) == len(windows[0]) == len(windows[1]) == 1
    partial_type = partial_dtype(op, x.dtype, out.dtype)
    divisor = axes.length if op == "mean" else 0
    launches: list[Launch] = []
    for (a, first), (b, second) in itertools.product(*windows[:2]):
        kept, at = (first, second), a * width + b
        aligned = out.aligned and at % ALIGNMENT == 0
        result = Target(Operand(Tensor(1), out.dtype, aligned), (width, 1), 1, divisor)
        results = Spec(out.dtype, (first[0], second[0]), (width, 1), aligned)
        for number, ((c, outer), (d, inner)) in enumerate(term_windows):
            window = Axes(kept, (outer, inner))
            offset = a * first[1] + b * second[1] + c * outer[1] + d * inner[1]
            source = Operand(Tensor(0), x.dtype, x.aligned and offset % ALIGNMENT == 0)
            partial = Operand(Workspace(2), partial_type, start=number * splits)
            target = result if total == 1 else Target(partial, (second[0] * total, total), splits)
            launch = single_pass.reduce(runtime, op, source, window, target)
            launches.append(launch if whole else _on_window(launch, _window_spec(x, window), offset, results, at))
        if total > 1:
            partials = Axes(((first[0], second[0] * total), (second[0], total)), ((1, 0), (total, 1)))
            last = single_pass.reduce(runtime, op, Operand(Workspace(2), partial_type), partials, result)
            launches.append(last if whole else _on_window(last, x, 0, results, at))
    if len(launches) == 1:
        return launch
    nbytes = total * lengths[0] * lengths[1] * partial_type.itemsize
    return LaunchSequence(launches, () if total == 1 else (nbytes,))


def _window_spec(x: Spec, axes: Axes) -> Spec:
    """Return the spec of the input's window that a kernel binds."""
    all_axes = (*axes.kept, *axes.reduced)
    return Spec(x.dtype, tuple(n for n, _ in all_axes), tuple(s for _, s in all_axes), False)


def _on_window(launch: Launch, source: Spec, offset: int, results: Spec, at: int) -> Launch:
    """Return the launch of a window as a function of the arguments of the whole reduction."""

    def run(x: Ref, out: Ref, *workspace: Any) -> None:
        launch(Ref(x.handle, source, x.offset + offset), Ref(out.handle, results, out.offset + at), *workspace)

    return SimpleLaunch(launch.name, run)


def _windows(axis: Axis, length: int) -> list[Window]:
    whole, stride = axis
    return [(start, (min(length, whole - start), stride)) for start in range(0, whole, length)]


def _windows_and_splits(runtime: Runtime, x: Spec, axes: Axes, out: Spec) -> tuple[list[int], int]:
    """Return window lengths of the four axes that a kernel can bind, and the number of splits of each window's terms."""
    whole = (*axes.kept, *axes.reduced)
    lengths = [n for n, _ in whole]
    while True:
        first = [(n, s) for n, (_, s) in zip(lengths, whole, strict=True)]
        window = Axes((first[0], first[1]), (first[2], first[3]))
        splits = _splits(runtime, Operand(Tensor(0), x.dtype, x.aligned), window)
        term_windows = ceil_div(whole[2][0], lengths[2]) * ceil_div(whole[3][0], lengths[3])
        results = Spec(out.dtype, tuple(lengths[:2]), (axes.kept[1][0], 1))
        partial_bytes = term_windows * splits * results.size * _MAX_PARTIAL_BYTES
        if too_large(runtime, _window_spec(x, window)):
            longest = max(range(4), key=lambda i: (lengths[i] - 1) * abs(whole[i][1]))
        elif too_large(runtime, results) or partial_bytes > runtime.features.max_binding:
            longest = max(range(2), key=lambda i: lengths[i])
        else:
            return lengths, splits
        half = ceil_div(lengths[longest], 2)
        lengths[longest] = round_up(half, ALIGNMENT) if half > ALIGNMENT else half


def _splits(runtime: Runtime, x: Operand, axes: Axes) -> int:
    """Return the number of splits of the terms that keeps the device busy."""
    if axes.by_rows:
        term_lanes = row_lanes(runtime, ceil_div(axes.length, 4))
        active = axes.results * term_lanes
    else:
        width = column_width(x, axes)
        vectors = ceil_div(axes.kept[1][0], width)
        group = group_reduce.column_group(runtime, vectors, axes.length, width)
        term_lanes = group.rows
        active = axes.kept[0][0] * ceil_div(vectors, group.vectors) * group.group
    return split_count(active, group_reduce.busy_invocations(runtime), axes.length // (term_lanes * _MIN_TERMS))


_BUILDERS = ReductionBuilders(copy.copy, _values, positions)

LOWERINGS = reduction.lowerings(_BUILDERS)


def build(runtime: Runtime, op: str, x: Spec, out: Spec, axes: tuple[int, ...]) -> Launch:
    """Return a launch (x, out) for contiguous `out` with the kept axes in order. Raises UnsupportedOpError."""
    launch = reduction.build(_BUILDERS, runtime, op, x, out, axes)
    assert not isinstance(launch, Declined), launch.reason
    return launch
