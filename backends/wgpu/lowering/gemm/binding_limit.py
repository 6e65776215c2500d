"""Products of matrices beyond the binding size limit, split recursively into two smaller products.

The axis with the largest span of an operand is halved. If it is k, both halves store partial sums in workspace, and a
third launch adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import LaunchSequence
from polyhal.backends.common.problems.gemm import Matrix, Product
from polyhal.backends.wgpu.lowering.support.windows import too_large
from polyhal.backends.wgpu.runtime import Runtime
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous
from polyhal.hal.protocol import Launch, SimpleLaunch

Build = Callable[[Runtime, Product], Launch]
Reduce = Callable[[Runtime, Product, int], Launch]

_M, _N, _K = 3, 4, 5
"""Axes of a product, after the three of the batch."""


def halve(runtime: Runtime, p: Product, build: Build, reduce: Reduce) -> Launch | None:
    """Return the launch of a product with an operand that is too large, or None if all of them fit.

    `build` returns the launches of the halves; `reduce` returns one that adds partial sums (split, batch, m, n) in the
    first workspace.
    """
    operands = _operands(p)
    if not too_large(runtime, *operands):
        return None
    axis = _widest_axis(operands, _K)
    partial_bytes = 2 * p.count * p.m * p.n * p.sum_dtype.itemsize
    if axis == _K and (too_large(runtime, operands[2]) or partial_bytes > runtime.features.max_binding):
        axis = _widest_axis(operands[2:], _N)
    length = operands[0].shape[axis]
    middle = min(round_up(ceil_div(length, 2), ALIGNMENT), length - 1)
    cuts = ((0, middle), (middle, length - middle))
    if axis != _K:
        halves = [_half(runtime, p, build, axis, start, size) for start, size in cuts]
        return LaunchSequence(halves, _shared_workspace(halves))
    halves = [_half(runtime, p, build, axis, start, size, split) for split, (start, size) in enumerate(cuts)]
    return LaunchSequence([*halves, reduce(runtime, p, len(cuts))], (partial_bytes, *_shared_workspace(halves)))


def _widest_axis(operands: Sequence[Spec], last: int) -> int:
    """Return the axis up to `last` along which some operand spans the most bytes."""
    return max(
        range(last + 1), key=lambda a: max(abs(s.strides[a]) * (s.shape[a] - 1) * s.dtype.itemsize for s in operands)
    )


def _operands(p: Product) -> tuple[Spec, Spec, Spec]:
    """Return left, right and output on the axes (batch, m, n, k), with stride 0 along missing axes."""
    shape = (*p.batch, p.m, p.n, p.k)
    return (
        Spec(p.dtype, shape, (*p.left.batch, p.left.row, 0, p.left.column), p.left.aligned),
        Spec(p.dtype, shape, (*p.right.batch, 0, p.right.column, p.right.row), p.right.aligned),
        Spec(p.out_dtype, shape, (*p.out.batch, p.out.row, p.out.column, 0), p.out.aligned),
    )


def _shared_workspace(launches: Sequence[Launch]) -> tuple[int, ...]:
    """Return the workspace that consecutive launches can share."""
    return tuple(max(sizes) for sizes in zip_longest(*(launch.workspace for launch in launches), fillvalue=0))


def _half(
    runtime: Runtime, p: Product, build: Build, axis: int, start: int, length: int, split: int | None = None
) -> Launch:
    """Return the launch for `length` elements of `axis`, called with the product's arguments.

    With `split`, it stores its sums as that split in the first workspace of the product; its own workspace follows.
    """
    moves = [s.strides[axis] * start for s in _operands(p)]
    lengths = [length if a == axis else n for a, n in enumerate((*p.batch, p.m, p.n, p.k))]
    b0, b1, b2, m, n, k = lengths
    left, right, out = [
        replace(matrix, place=i, aligned=matrix.aligned and move % ALIGNMENT == 0)
        for i, (matrix, move) in enumerate(zip((p.left, p.right, p.out), moves, strict=True))
    ]
    bias = p.bias if split is None else None
    half = replace(
        p,
        batch=(b0, b1, b2),
        m=m,
        n=n,
        k=k,
        left=left,
        right=right,
        out=out,
        bias=None if bias is None else 3,
        workspace=3 if bias is None else 4,
    )
    size = p.count * p.m * p.n
    if split is not None:
        target = Matrix(2, n, 1, (b1 * b2 * m * n, b2 * m * n, m * n), split * size % ALIGNMENT == 0)
        half = replace(half, out=target, out_dtype=p.sum_dtype)
    launch = build(runtime, half)
    specs = [Spec(s.dtype, tuple(lengths), s.strides, s.aligned) for s in _operands(p)]
    places = (p.left.place, p.right.place, p.out.place)
    bias_move = start * {_M: p.bias_row, _N: p.bias_column}.get(axis, 0)

    def run(*args: Any) -> None:
        refs = [
            Ref(args[place].handle, spec, args[place].offset + move)
            for place, spec, move in zip(places, specs, moves, strict=True)
        ]
        if split is not None:
            refs[2] = Ref(args[p.workspace], contiguous(p.sum_dtype, (size,)), split * size)
        if bias is not None:
            refs.append(Ref(args[bias].handle, args[bias].spec, args[bias].offset + bias_move))
        launch(*refs, *args[p.workspace + (split is not None) :])

    return SimpleLaunch(launch.name, run, launch.workspace)
