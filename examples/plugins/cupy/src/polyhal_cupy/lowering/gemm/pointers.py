"""Batched products over pointer arrays, which a kernel writes to workspace first. Kernel: kernels/gemm/pointers.cu.

A batch along two axes, such as images and heads, is one call with pointer arrays; a strided call covers one axis only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.backends.common.launching.geometry import ceil_div
from polyhal.backends.common.launching.launch import Arguments, Workspace
from polyhal.hal.protocol import SimpleLaunch
from polyhal_cupy import blas
from polyhal_cupy.launch import StructLaunch, address
from polyhal_cupy.lowering.gemm import cublas
from polyhal_cupy.lowering.gemm.cublas import BatchedGemm, Matrices, Step
from polyhal_cupy.runtime import Runtime

_AXES = 3
_BLOCK = 128
_POINTER_BYTES = 8
_MAX_OPERANDS = 120
"""Maximum operands in the parameters of one kernel, at 32 bytes each."""


class PointerArrays:
    """The pointer arrays of several products over one batch, in one workspace."""

    def __init__(self, runtime: Runtime, place: int, batch: tuple[int, ...]) -> None:
        """Start without products; `place` is the argument index of the workspace."""
        self._runtime = runtime
        self._place = place
        self._batch = batch
        self._operands: list[tuple[Matrices, int]] = []

    @property
    def nbytes(self) -> int:
        """Size of the workspace; 0 if no product uses it."""
        return len(self._operands) * math.prod(self._batch) * _POINTER_BYTES

    def multiply(self, p: BatchedGemm, name: str = "matmul") -> Step | None:
        """Return a step for the product, with pointer arrays if they are faster; None if an operand must be copied first."""
        layouts = p.layouts()
        return self._add(p, *layouts, name) or cublas.multiply(self._runtime, p, name) if layouts else None

    def _add(self, p: BatchedGemm, a: blas.Layout, b: blas.Layout, name: str) -> Step | None:
        """Return a step that uses pointer arrays; None if they are not faster, or cuBLAS lacks the call for the dtype."""
        count = math.prod(self._batch)
        useful = p.batch == self._batch and len(p.batch) <= _AXES and sum(n > 1 for n in p.batch) > 1
        if not useful or len(self._operands) + 3 > _MAX_OPERANDS:
            return None
        run = self._runtime.blas.prepare_pointer_arrays(
            blas.Gemm(p.m, p.n, p.k, count, a, b, 0, 0, 0, max(p.out.row, p.n), p.dtype, p.out_dtype, p.alpha, p.beta)
        )
        if run is None:
            return None
        first, span = self.nbytes, count * _POINTER_BYTES
        self._operands += p.operands

        def step(*args: Any) -> None:
            at = args[self._place] + first
            self._runtime.call(name, lambda: run(at, at + span, at + 2 * span))

        return SimpleLaunch(name, step)

    def fill(self) -> list[Step]:
        """Return the launch that writes the pointer arrays, to run before the products; empty without pointer arrays."""
        if not self._operands:
            return []
        count, padding = math.prod(self._batch), (0,) * (_AXES - len(self._batch))
        lengths = [*(1 for _ in padding), *self._batch]
        operands = len(self._operands)
        kernel = self._runtime.kernel("gemm/pointers", {"OPERANDS": operands, "BLOCK": _BLOCK})
        template = np.zeros((), kernel.struct)
        template["steps"] = [s * item for o, item in self._operands for s in (*padding, *o.batch)]

        def fill(arguments: Sequence[Any]) -> np.ndarray:
            struct = template.copy()
            struct["bases"] = [address(arguments[o.place]) + o.offset * item for o, item in self._operands]
            return struct

        args: Arguments = {"out": Workspace(self._place), "count": count, "batch1": lengths[1], "batch2": lengths[2]}
        blocks = ceil_div(operands * count, _BLOCK)
        return [StructLaunch(self._runtime, "pointers", kernel, fill, args, blocks, _BLOCK)]
