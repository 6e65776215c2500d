"""Reductions over any axes: along rows, down columns, or whole tensors, in one pass or two.

When there are too few results to fill the device, or an operand is larger than what a kernel can see, each result is made
in parts, which a second pass joins. The split depends on shapes and device only, so results repeat bit by bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Constant, LaunchSequence, Tensor, Workspace
from polyhal.backends.common.launching.split_k import split_count
from polyhal.backends.common.problems import reduction
from polyhal.backends.common.problems.reduction import Axes, Axis, Operation, ReductionBuilders
from polyhal.backends.wgpu.lowering.pointwise import copy
from polyhal.backends.wgpu.lowering.reduction.passes import (
    Operand,
    Target,
    column_width,
    held_dtype,
    in_runs,
    one_pass,
    row_lanes,
    uints,
    walk,
)
from polyhal.backends.wgpu.lowering.support import group_reduce
from polyhal.backends.wgpu.lowering.support.windows import too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import ALIGNMENT, Ref, Spec
from polyhal.hal.protocol import Declined, Launch

_TERMS_EACH = 32
"""Terms per invocation below which a second pass costs more than it wins."""
_PARTIAL = 8
"""Bytes of a partial result at most."""

Cut = tuple[int, Axis]
"""Where a piece of an axis begins, and that piece."""


def _values(runtime: Runtime, op: Operation, x: Spec, axes: Axes, out: Spec) -> Launch:
    lengths, parts = _division(runtime, x, axes, out)
    cuts = [list(_cuts(axis, n)) for axis, n in zip((*axes.kept, *axes.reduced), lengths, strict=True)]
    terms = list(itertools.product(*cuts[2:]))
    total = len(terms) * parts
    width = axes.kept[1][0]
    whole = len(terms) == len(cuts[0]) == len(cuts[1]) == 1
    held = held_dtype(op, x.dtype, out.dtype)
    divisor = axes.length if op == "mean" else 0
    launches: list[Callable[..., None]] = []
    for (a, first), (b, second) in itertools.product(*cuts[:2]):
        kept, at = (first, second), a * width + b
        aligned = out.aligned and at % ALIGNMENT == 0
        result = Target(Operand(Tensor(1), out.dtype, aligned), (width, 1), 1, divisor)
        results = Spec(out.dtype, (first[0], second[0]), (width, 1), aligned)
        for number, ((c, outer), (d, inner)) in enumerate(terms):
            piece = Axes(kept, (outer, inner))
            moved = a * first[1] + b * second[1] + c * outer[1] + d * inner[1]
            source = Operand(Tensor(0), x.dtype, x.aligned and moved % ALIGNMENT == 0)
            partial = Operand(Workspace(2), held, start=number * parts)
            target = result if total == 1 else Target(partial, (second[0] * total, total), parts)
            launch = one_pass(runtime, op, source, piece, target)
            launches.append(launch if whole else _moved(launch, _seen(x, piece), moved, results, at))
        if total > 1:
            joined = Axes(((first[0], second[0] * total), (second[0], total)), ((1, 0), (total, 1)))
            last = one_pass(runtime, op, Operand(Workspace(2), held), joined, result)
            launches.append(last if whole else _moved(last, x, 0, results, at))
    if len(launches) == 1:
        return launch
    size = total * lengths[0] * lengths[1] * held.itemsize
    return LaunchSequence(f"reduce.{op}", launches, () if total == 1 else (size,))


def _seen(x: Spec, axes: Axes) -> Spec:
    """What a kernel sees of the input."""
    walked = (*axes.kept, *axes.reduced)
    return Spec(x.dtype, tuple(n for n, _ in walked), tuple(s for _, s in walked), False)


def _moved(launch: Launch, source: Spec, offset: int, results: Spec, at: int) -> Callable[..., None]:
    """The launch of a piece as a function of the whole's arguments."""

    def run(x: Ref, out: Ref, *workspace: Any) -> None:
        launch(Ref(x.handle, source, x.offset + offset), Ref(out.handle, results, out.offset + at), *workspace)

    return run


def _cuts(axis: Axis, length: int) -> list[Cut]:
    whole, stride = axis
    return [(start, (min(length, whole - start), stride)) for start in range(0, whole, length)]


def _division(runtime: Runtime, x: Spec, axes: Axes, out: Spec) -> tuple[list[int], int]:
    """The lengths of the pieces of the four axes that a kernel can see, and the parts that each piece's terms have."""
    whole = (*axes.kept, *axes.reduced)
    lengths = [n for n, _ in whole]
    while True:
        first = [(n, s) for n, (_, s) in zip(lengths, whole, strict=True)]
        piece = Axes((first[0], first[1]), (first[2], first[3]))
        parts = _parts(runtime, Operand(Tensor(0), x.dtype, x.aligned), piece)
        shares = ceil_div(whole[2][0], lengths[2]) * ceil_div(whole[3][0], lengths[3])
        results = Spec(out.dtype, tuple(lengths[:2]), (axes.kept[1][0], 1))
        if too_large(runtime, _seen(x, piece)):
            longest = max(range(4), key=lambda i: (lengths[i] - 1) * abs(whole[i][1]))
        elif too_large(runtime, results) or shares * parts * results.size * _PARTIAL > runtime.features.max_binding:
            longest = max(range(2), key=lambda i: lengths[i])
        else:
            return lengths, parts
        half = ceil_div(lengths[longest], 2)
        lengths[longest] = round_up(half, ALIGNMENT) if half > ALIGNMENT else half


def _parts(runtime: Runtime, x: Operand, axes: Axes) -> int:
    """Into how many parts the terms of a result are divided, so that the device is busy."""
    if axes.by_rows:
        share = row_lanes(runtime, ceil_div(axes.length, 4))
        busy = axes.results * share
    else:
        vectors = ceil_div(axes.kept[1][0], column_width(x, axes))
        block = group_reduce.block(runtime, vectors, axes.length)
        share = block.tall
        busy = axes.kept[0][0] * ceil_div(vectors, block.vectors) * block.group
    return split_count(busy, group_reduce.workers(runtime), axes.length // (share * _TERMS_EACH))


# --- positions ------------------------------------------------------------------------------------------------------


def _positions(runtime: Runtime, op: str, x: Spec, axes: Axes, out: Spec) -> Launch | Declined:
    if too_large(runtime, x, out):
        return Declined("an operand is larger than what a kernel can see at once")
    (k0, k0s), (k1, k1s) = axes.kept
    lanes = row_lanes(runtime, axes.length)
    group = group_reduce.group_size(runtime, lanes, axes.results)
    definitions = {
        **group_reduce.definitions(runtime, lanes, group), "DTYPE": x.dtype.name, "OUT_DTYPE": out.dtype.name,
        "BETTER": ">" if op == "argmax" else "<", "OUTER": k0 > 1, "RUNS": in_runs(axes),
    }  # fmt: skip
    parameters = [
        Tensor(0), Tensor(1), *uints(axes.results, k1, k0s, k1s), *walk(axes, lanes), Constant(axes.length, "uint")
    ]  # fmt: skip
    groups = ceil_div(axes.results * lanes, group)
    return runtime.launch(f"reduce.{op}", "reduction/arg", definitions, parameters, groups)


_BUILDERS = ReductionBuilders(copy.copy, _values, _positions)

LOWERINGS = reduction.lowerings(_BUILDERS)


def build(runtime: Runtime, op: str, x: Spec, out: Spec, axes: tuple[int, ...]) -> Launch:
    """A launch (x, out) for contiguous `out` that holds the kept axes in order. Raises UnsupportedOpError."""
    launch = reduction.build(_BUILDERS, runtime, op, x, out, axes)
    assert not isinstance(launch, Declined), launch.reason
    return launch
