"""Operands repacked for wgmma: lines padded to whole 16-byte chunks, float32 split into bfloat16 terms (bf16x3).

Source: Henry, Tang and Heinecke, 2019, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from polyhal.backends.common.launching.geometry import round_up
from polyhal.backends.common.launching.launch import Strided, Tensor, Workspace
from polyhal.backends.common.problems.gemm import BATCH_AXES, Matrix, Product, padded
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.protocol import Launch

_CHUNK = 8
"""Elements of 2 bytes in the largest asynchronous copy, 16 bytes; every line starts at a multiple of it."""
_PER_ITEM = 4
"""Elements that a work-item splits."""
_GROUP = (32, 8, 1)


@dataclass(frozen=True, slots=True)
class SplitOperand:
    """A repacked operand: the launch that writes it, and its layout in elements of 2 bytes."""

    launch: Launch
    matrix: Matrix
    term_stride: int
    """Distance from one bfloat16 term to the next."""
    nbytes: int


def split(runtime: Runtime, p: Product, matrix: Matrix, shape: tuple[int, int], terms: int, place: int) -> SplitOperand:
    """Split a float32 operand of that shape into `terms` bfloat16 terms in workspace `place`; 16-bit elements are copied.

    Matrices over which the batch is broadcast are split once. Raises KernelBuildError.
    """
    row_major = matrix.column == 1 or matrix.row != 1
    lines, length = shape if row_major else shape[::-1]
    line_stride, stride = (matrix.row, matrix.column) if row_major else (matrix.column, matrix.row)
    pitch = round_up(length, _CHUNK)
    distinct = padded(tuple(n if s else 1 for n, s in zip(p.batch, matrix.batch, strict=True)), 1)
    size = lines * pitch
    batch = [size * math.prod(distinct[i + 1 :]) if distinct[i] > 1 else 0 for i in range(BATCH_AXES)]
    term_stride = size * math.prod(distinct)
    vectors = stride == 1 and matrix.aligned and all(s % _PER_ITEM == 0 for s in (line_stride, *matrix.batch))
    batch0, batch1, batch2 = matrix.batch
    strides = {"line": line_stride, "element": stride, "batch0": batch0, "batch1": batch1, "batch2": batch2}
    launch = runtime.launch(
        "gemm/bf16_split",
        {"BF16_TERMS": terms, "VECTORS": vectors, "COPY_ONLY": p.dtype.itemsize == 2},
        {
            "x": Strided(Tensor(matrix.place), strides),
            "terms": Workspace(place),
            "length": length,
            "lines": lines,
            "pitch": pitch,
            "term_size": term_stride,
            "batch1": distinct[1],
            "batch2": distinct[2],
        },
        (pitch // _PER_ITEM, lines, math.prod(distinct)),
        _GROUP,
    )
    row, column = (pitch, 1) if row_major else (1, pitch)
    repacked = Matrix(place, row, column, padded(tuple(batch), 0), aligned=True)
    return SplitOperand(launch, repacked, term_stride, terms * term_stride * 2)
