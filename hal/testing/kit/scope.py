"""The selection of checks to run.

A device that compiles spends its time building kernels, one per op, dtype and pattern of strides. The normal scope
therefore runs every sample in the op's primary dtype, and a few of them in each other dtype, which vary with the dtype.
`full` runs every sample in every dtype and layout. `few_shapes` is for runtimes that compile a program per shape: every
op still runs, with its gradients, in the required dtypes and its primary one, on shapes shared by ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType

if TYPE_CHECKING:
    from polyhal.hal.ops.opdef import OpDef

_SMALL_ELEMENTS = 128
"""Maximum elements of a call in a small run: a kernel interpreter such as Oclgrind runs them in milliseconds."""
_CALLS_PER_DTYPE = 1
"""Calls in a dtype other than the primary one, in addition to calls on empty tensors and on special values."""
_SMALL_CALLS = 3
"""Calls in the primary dtype of a small run."""


@dataclass(frozen=True, slots=True)
class Scope:
    """`small` keeps the calls with few elements; `full` runs every sample in every dtype and layout.

    `few_shapes` runs every op on few shapes, contiguous, in few dtypes.
    """

    small: bool = False
    full: bool = False
    few_shapes: bool = False

    def runs(self, op: OpDef, dtype: DType) -> bool:
        """Return whether calls of `op` in `dtype` are part of the run."""
        return not self.few_shapes or dtype in dtypes.REQUIRED or dtype is primary(op)

    def accepts(self, elements: int) -> bool:
        """Return whether a call on that many elements is part of the run."""
        return not self.small or elements <= _SMALL_ELEMENTS

    def sampled(self, op: OpDef, dtype: DType | None, numbers: Sequence[int]) -> frozenset[int]:
        """Return the sample numbers among `numbers` that run in `dtype`."""
        if self.full or dtype is None or not numbers:
            return frozenset(numbers)
        if dtype is primary(op):
            return frozenset(numbers[:: -(-len(numbers) // _SMALL_CALLS)] if self.small else numbers)
        start = op.tests.dtypes.index(dtype) * _CALLS_PER_DTYPE
        return frozenset(numbers[(start + k) % len(numbers)] for k in range(_CALLS_PER_DTYPE))


def primary(op: OpDef) -> DType | None:
    """Return the dtype in which every sample of `op` runs: float32 if it is tested in float32, else its first."""
    return dtypes.float32 if dtypes.float32 in op.tests.dtypes else next(iter(op.tests.dtypes), None)
