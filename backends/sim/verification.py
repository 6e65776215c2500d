"""Verification: every result of a simulated device is compared with NumPy's as it runs.

Kernels are computed again in float64 from their inputs, and compared within the bound that the conformance kit derives for the
op. Transfers are compared byte by byte. Verification takes no virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyhal.backends.sim.kernels import KernelObject
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.samples import Tolerance

_MEMBER_TOLERANCE = Tolerance(4.0)
"""Units in the last place for functions of the contract, in addition to the rounding of sums."""
_SUMS = ("matmul", "sum", "mean", "scatter_add")


@dataclass
class Verification:
    """Number of comparisons, and the differences found."""

    kernels: int = 0
    elements: int = 0
    transfers: int = 0
    nbytes: int = 0
    problems: list[str] = field(default_factory=list)

    def kernel(self, sequence: int, kernel: KernelObject, inputs: Sequence[Any], outs: Sequence[np.ndarray]) -> None:
        """Compare the results of a kernel, given its inputs before it ran."""
        self.kernels += 1
        self.elements += sum(out.size for out in outs)
        problem = _op_problem(kernel, inputs, outs) if kernel.op else _member_problem(kernel, inputs, outs)
        if problem:
            self.problems.append(f"command {sequence}, {kernel.name}: {problem}")

    def transfer(self, sequence: int, source: np.ndarray | None, target: np.ndarray | None) -> None:
        """Compare received bytes with sent bytes. None: the device has no storage."""
        if source is None or target is None:
            return
        self.transfers += 1
        self.nbytes += source.nbytes
        wrong = np.count_nonzero(source != target)
        if wrong:
            self.problems.append(f"command {sequence}: {wrong} of {source.nbytes} transferred bytes are wrong")


def snapshot(operands: Sequence[Any]) -> list[Any]:
    """Return copies of inputs, which a kernel may overwrite."""
    return [x.copy() if isinstance(x, np.ndarray) else x for x in operands]


def _op_problem(kernel: KernelObject, inputs: Sequence[Any], outs: Sequence[np.ndarray]) -> str:
    from polyhal.hal.system.checks.reference import deviation

    wrong = deviation(OPS[kernel.op], dict(kernel.params), tuple(inputs), tuple(outs))
    return str(wrong) if wrong is not None else ""


def _member_problem(kernel: KernelObject, inputs: Sequence[Any], outs: Sequence[np.ndarray]) -> str:
    """Compare a function of the contract with itself in float64."""
    from polyhal.hal.system.reference.tolerances import Bound, ResultError, check_close

    got, dtype = outs[0], as_dtype(outs[0].dtype)
    expected = _computed(kernel, inputs, got)
    bound = Bound(_MEMBER_TOLERANCE)
    if kernel.name in _SUMS and got.size:
        terms = max(x.size for x in inputs if isinstance(x, np.ndarray)) // got.size + inputs[0].shape[-1]
        magnitudes = _computed(kernel, [np.abs(x) if isinstance(x, np.ndarray) else x for x in inputs], got)
        bound = Bound(_MEMBER_TOLERANCE, terms, magnitudes)
    try:
        check_close(got, expected, dtype, bound, kernel.name)
    except ResultError as error:
        return str(error)
    return ""


def _computed(kernel: KernelObject, inputs: Sequence[Any], got: np.ndarray) -> np.ndarray:
    wide = np.float64 if as_dtype(got.dtype).is_floating_point else got.dtype
    out = np.zeros(got.shape, wide)
    with np.errstate(all="ignore"):
        kernel.compute([_widened(x) for x in inputs], [out])
    return out


def _widened(x: Any) -> Any:
    floating = isinstance(x, np.ndarray) and as_dtype(x.dtype).is_floating_point
    return x.astype(np.float64) if floating else x
