"""How much of the kit runs.

A compiling device spends its time on building kernels, one for each op, dtype and pattern of strides. So the normal
scope runs every sample in one dtype, the op's primary one, and a share of them in each other dtype, which moves on from
dtype to dtype; `full` runs the whole product, every input in every arrangement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType

if TYPE_CHECKING:
    from polyhal.hal.ops.opdef import OpDef

_SMALL = 128
"""Elements: what a kernel interpreter such as Oclgrind gets through in milliseconds."""
_SHARE = 1
"""Calls in each dtype that is not the primary one, besides those without elements and those on special values."""
_SMALL_CALLS = 3
"""Calls in the primary dtype of a small run."""


@dataclass(frozen=True, slots=True)
class Scope:
    """`small` keeps the calls with few elements; `full` runs every sample in every dtype and every arrangement."""

    small: bool = False
    full: bool = False

    def accepts(self, elements: int) -> bool:
        """Whether a call on so many elements is part of the run."""
        return not self.small or elements <= _SMALL

    def share(self, op: OpDef, dtype: DType | None, plain: Sequence[int]) -> frozenset[int]:
        """Which of the sample numbers `plain` are run in `dtype`."""
        if self.full or dtype is None or not plain:
            return frozenset(plain)
        if dtype is primary(op):
            return frozenset(plain[:: -(-len(plain) // _SMALL_CALLS)] if self.small else plain)
        start = op.tests.dtypes.index(dtype) * _SHARE
        return frozenset(plain[(start + k) % len(plain)] for k in range(_SHARE))


def primary(op: OpDef) -> DType | None:
    """The dtype in which every sample of `op` is run: float32 where it has that."""
    return dtypes.float32 if dtypes.float32 in op.tests.dtypes else next(iter(op.tests.dtypes), None)
