"""The products of attention by cuBLAS, band by band: queries times keys, and weights times values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ALIGNMENT, Ref, contiguous
from polyhal.hal.protocol import SimpleLaunch
from polyhal_cupy.lowering.attention.problem import AttentionProblem, Band, Part, score_dtype
from polyhal_cupy.lowering.gemm.cublas import BatchedGemm, Matrices, Step, contiguous_matrices
from polyhal_cupy.lowering.gemm.pointers import PointerArrays
from polyhal_cupy.lowering.pointwise.copy import copy as copy_launch
from polyhal_cupy.runtime import Runtime


class AttentionProducts:
    """The products with score matrices for one part of the batch. `failed` is set if cuBLAS does not support one of them."""

    def __init__(
        self, runtime: Runtime, problem: AttentionProblem, bands: Sequence[Band], part: Part, dtype: DType, place: int
    ) -> None:
        """Prepare the products; `place` is the argument index of the workspace for pointer arrays."""
        self.arrays = PointerArrays(runtime, place, part.batch)
        self._runtime = runtime
        self._problem = problem
        self._bands = bands
        self._part = part
        self._dtype = dtype
        self.failed = False

    def _add(self, steps: list[Step], m: int, n: int, k: int, a: Matrices, b: Matrices, out: Matrices, out_dtype: DType,
             alpha: float, beta: float, name: str) -> None:  # fmt: skip
        p = BatchedGemm(self._part.batch, m, n, k, a, b, out, self._dtype, out_dtype, alpha, beta)
        step = self.arrays.multiply(p, name)
        if step is None:
            self.failed = True
        else:
            steps.append(step)

    def _band_scores(self, place: int, band: Band) -> Matrices:
        scores = contiguous_matrices(place, self._part.batch, self._problem.t, self._problem.s)
        return scores.from_row(band.first)

    def scores(self, out: int, a: Matrices, b: Matrices, k: int, alpha: float, name: str) -> list[Step]:
        """Return steps for out = alpha a b^T; `a` are queries, `b` keys, with `k` features; `out` is an argument index."""
        steps: list[Step] = []
        dtype = score_dtype(self._dtype)
        for band in self._bands:
            band_a, band_out = a.from_row(band.first), self._band_scores(out, band)
            self._add(steps, band.rows, band.keys, k, band_a, b.transposed, band_out, dtype, alpha, 0.0, name)
        return steps

    def weighted_sum(
        self, weights: Sequence[int], b: Matrices, out: int, columns: int, accumulator: int, alpha: float, name: str, *,
        transposed: bool = False,
    ) -> list[Step]:  # fmt: skip
        """Return steps for out = alpha (sum of weights) b, with `transposed` weights or not; `b` has `columns` columns.

        `weights` are one or two score matrices (terms of a split). The sum of two products accumulates in float32 in
        argument `accumulator` and is rounded at the end.
        """
        problem, part, split = self._problem, self._part, len(weights) > 1
        rows_out = problem.s if transposed else problem.t
        offset = part.start * problem.matrices_per_index * rows_out * columns
        target = contiguous_matrices(
            accumulator if split else out, part.batch, rows_out, columns, 0 if split else offset
        )  # fmt: skip
        dtype = dtypes.float32 if split else self._dtype
        steps: list[Step] = []
        # With `transposed`, the last band covers all keys, so it initialises the output and the others are added.
        for band in reversed(self._bands) if transposed else self._bands:
            for term in weights:
                band_weights = self._band_scores(term, band)
                if transposed:
                    self._add(
                        steps, band.keys, columns, band.rows, band_weights.transposed, b.from_row(band.first), target, dtype,
                        alpha, float(bool(steps)), name,
                    )  # fmt: skip
                else:
                    self._add(
                        steps, band.rows, columns, band.keys, band_weights, b, target.from_row(band.first), dtype, alpha,
                        float(term != weights[0]), name,
                    )  # fmt: skip
        return [*steps, self._round(out, rows_out, columns, offset, accumulator)] if split else steps

    def _round(self, out: int, rows_out: int, columns: int, offset: int, accumulator: int) -> Step:
        """Return a step that casts the accumulated sums to the output."""
        shape = (self._part.count, rows_out, columns)
        wide = contiguous(dtypes.float32, shape)
        narrow = contiguous(self._dtype, shape)._replace(aligned=offset % ALIGNMENT == 0)
        copy = copy_launch(self._runtime, wide, narrow)

        def step(*args: Any) -> None:
            result = args[out]
            copy(Ref(args[accumulator], wide), Ref(result.handle, narrow, result.offset + offset))

        return SimpleLaunch(copy.name, step)
