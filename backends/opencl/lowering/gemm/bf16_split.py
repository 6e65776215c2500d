"""Operands in the lines that Hopper's tensor cores are fed from fastest; float32 ones as sums of bfloat16 numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import ceil_div, round_up
from polyhal.backends.common.launching.launch import Strided, Tensor, Workspace
from polyhal.backends.common.problems.gemm import BATCH_AXES, Matrix, Product, padded
from polyhal.backends.opencl.lowering.gemm.arguments import geometry
from polyhal.backends.opencl.lowering.support.epilogue import epilogue
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.protocol import Launch

_PIECE = 8
"""Elements: lines begin at multiples of the largest copy's 16 bytes."""
_PER_ITEM = 4
_GROUP = (32, 8, 1)
_TOGETHER = 4
"""Results that a work-item looks at together."""
_REPAIR_GROUPS = 16
"""Groups per compute unit that look for results to repair."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The launch that makes the parts of an operand, and where they then lie, in elements of 2 bytes."""

    launch: Launch
    matrix: Matrix
    distance: int
    """From one part to the next."""
    nbytes: int


def parts(runtime: Runtime, p: Product, matrix: Matrix, shape: tuple[int, int], count: int, place: int) -> Parts:
    """`count` parts of an operand of that shape, in workspace `place`; one of 16-bit elements is copied as it is.

    Matrices that batches share are split once.
    """
    along_rows = matrix.column == 1 or matrix.row != 1
    lines, length = shape if along_rows else shape[::-1]
    line, step = (matrix.row, matrix.column) if along_rows else (matrix.column, matrix.row)
    pitch = round_up(length, _PIECE)
    distinct = padded(tuple(n if s else 1 for n, s in zip(p.batch, matrix.batch, strict=True)), 1)
    size = lines * pitch
    steps = [size * math.prod(distinct[i + 1 :]) if distinct[i] > 1 else 0 for i in range(BATCH_AXES)]
    distance = size * math.prod(distinct)
    quads = step == 1 and matrix.aligned and all(s % _PER_ITEM == 0 for s in (line, *matrix.batch))
    launch = runtime.launch(
        "matmul_split", "gemm/bf16_split", {"PARTS": count, "QUADS": quads, "COPIED": p.dtype.itemsize == 2},
        {
            "x": Strided(Tensor(matrix.place), {"line": line, "element": step, "batch0": matrix.batch[0],
            "batch1": matrix.batch[1], "batch2": matrix.batch[2]}), "parts": Workspace(place), "length": length,
            "lines": lines, "pitch": pitch, "part_size": distance, "batch1": distinct[1], "batch2": distinct[2],
        },
        (pitch // _PER_ITEM, lines, math.prod(distinct)), _GROUP,
    )  # fmt: skip
    row, column = (pitch, 1) if along_rows else (1, pitch)
    found = Matrix(place, row, column, padded(tuple(steps), 0), aligned=True)
    return Parts(launch, found, distance, count * distance * 2)


def repair(runtime: Runtime, p: Product) -> Launch:
    """The launch that makes results again which are not finite; see gemm/bf16_repair.cl."""
    finishing, finishing_args = epilogue(p)
    size = p.count * p.m * p.n
    group = runtime.features.group_size
    items = min(round_up(ceil_div(size, _TOGETHER), group), runtime.features.compute_units * _REPAIR_GROUPS * group)
    return runtime.launch(
        "matmul_repair", "gemm/bf16_repair", {"REAL": "float", "WIDTH": 1, **finishing},
        {**geometry(p), **finishing_args, "out": Tensor(p.out.place), "size": size},
        (items,), (group,),
    )  # fmt: skip
