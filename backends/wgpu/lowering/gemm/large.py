"""Products of matrices larger than what a kernel can see at once: two smaller products, and theirs in turn.

The axis on which the largest operand reaches farthest is halved. Halves of what is summed over leave their sums in
workspace, where they are added.
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
from polyhal.hal.protocol import Launch

Build = Callable[[Runtime, Product], Launch]
Add = Callable[[Runtime, Product, int], Launch]

_ROWS, _COLUMNS, _TERMS = 3, 4, 5
"""Axes of a product, after those of the batch."""


def halved(runtime: Runtime, p: Product, build: Build, add: Add) -> Launch | None:
    """The launch for a product with an operand that is too large, or None where all of them fit.

    `build` makes the launches of its halves, and `add` one that adds up so many (batch, m, n) sums in the first workspace.
    """
    operands = _operands(p)
    if not too_large(runtime, *operands):
        return None
    axis = _farthest(operands, _TERMS)
    partial_bytes = 2 * p.count * p.m * p.n * p.sum_dtype.itemsize
    if axis == _TERMS and (too_large(runtime, operands[2]) or partial_bytes > runtime.features.max_binding):
        axis = _farthest(operands[2:], _COLUMNS)
    length = operands[0].shape[axis]
    middle = min(round_up(ceil_div(length, 2), ALIGNMENT), length - 1)
    cuts = ((0, middle), (middle, length - middle))
    if axis != _TERMS:
        parts = [_part(runtime, p, build, axis, start, size) for start, size in cuts]
        return LaunchSequence("matmul", [run for run, _ in parts], _joined([w for _, w in parts]))
    sums = [_part(runtime, p, build, axis, start, size, slot) for slot, (start, size) in enumerate(cuts)]
    steps: list[Callable[..., None]] = [*(run for run, _ in sums), add(runtime, p, len(cuts))]
    return LaunchSequence("matmul", steps, (partial_bytes, *_joined([w for _, w in sums])))


def _farthest(operands: Sequence[Spec], last: int) -> int:
    """The axis up to `last` on which some operand spans the most bytes."""
    return max(
        range(last + 1), key=lambda a: max(abs(s.strides[a]) * (s.shape[a] - 1) * s.dtype.itemsize for s in operands)
    )


def _operands(p: Product) -> tuple[Spec, Spec, Spec]:
    """Both factors and the result on the axes of all of them: batch, rows, columns, terms; stride 0 where one has none."""
    shape = (*p.batch, p.m, p.n, p.k)
    return (
        Spec(p.dtype, shape, (*p.left.batch, p.left.row, 0, p.left.column), p.left.aligned),
        Spec(p.dtype, shape, (*p.right.batch, 0, p.right.column, p.right.row), p.right.aligned),
        Spec(p.out_dtype, shape, (*p.out.batch, p.out.row, p.out.column, 0), p.out.aligned),
    )


def _joined(workspaces: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Workspace in which launches can follow each other."""
    return tuple(max(sizes) for sizes in zip_longest(*workspaces, fillvalue=0))


def _part(
    runtime: Runtime, p: Product, build: Build, axis: int, start: int, length: int, slot: int | None = None
) -> tuple[Callable[..., None], tuple[int, ...]]:
    """Part of one axis of a product as a function of the whole's arguments, and the workspace that it needs.

    With `slot`, it leaves its sums there in the first workspace of the whole, and its own workspace comes after that one.
    """
    moves = [s.strides[axis] * start for s in _operands(p)]
    lengths = [length if a == axis else n for a, n in enumerate((*p.batch, p.m, p.n, p.k))]
    b0, b1, b2, m, n, k = lengths
    factors = [
        replace(matrix, place=i, aligned=matrix.aligned and move % ALIGNMENT == 0)
        for i, (matrix, move) in enumerate(zip((p.left, p.right, p.out), moves, strict=True))
    ]
    part = replace(p, batch=(b0, b1, b2), m=m, n=n, k=k, left=factors[0], right=factors[1], out=factors[2])
    bias = p.bias if slot is None else None
    part = replace(part, bias=None if bias is None else 3, workspace=3 if bias is None else 4)
    size = p.count * p.m * p.n
    if slot is not None:
        target = Matrix(2, n, 1, (b1 * b2 * m * n, b2 * m * n, m * n), slot * size % ALIGNMENT == 0)
        part = replace(part, out=target, out_dtype=p.sum_dtype)
    launch = build(runtime, part)
    specs = [Spec(s.dtype, tuple(lengths), s.strides, s.aligned) for s in _operands(p)]
    places = (p.left.place, p.right.place, p.out.place)
    bias_move = start * {_ROWS: p.bias_row, _COLUMNS: p.bias_column}.get(axis, 0)

    def run(*args: Any) -> None:
        refs = [
            Ref(args[place].handle, spec, args[place].offset + move)
            for place, spec, move in zip(places, specs, moves, strict=True)
        ]
        if slot is not None:
            refs[2] = Ref(args[p.workspace], contiguous(p.sum_dtype, (size,)), slot * size)
        if bias is not None:
            refs.append(Ref(args[bias].handle, args[bias].spec, args[bias].offset + bias_move))
        launch(*refs, *args[p.workspace + (slot is not None) :])

    return run, launch.workspace
