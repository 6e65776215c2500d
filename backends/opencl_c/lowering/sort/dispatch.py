"""Sorting and top-k along any axis: radix sort on GPUs; merge sort on CPUs and where local memory is scarce."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyhal.backends.common.problems.rows import rows_along
from polyhal.backends.opencl_c.lowering.sort import cpu_merge, radix
from polyhal.backends.opencl_c.lowering.sort.problem import SortProblem
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Inputs = tuple[InputSpec | None, ...]


def _sort(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    return _lower(runtime, inputs[0], outputs, params["axis"], params["descending"])


def _topk(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
    return _lower(runtime, inputs[0], outputs, params["axis"], params["largest"])


def _lower(
    runtime: Runtime, x: InputSpec | None, outputs: tuple[Spec, ...], axis: int, descending: bool
) -> Launch | Declined:
    """Sort each row; the length of the results' rows is the number of elements to keep."""
    if not isinstance(x, Spec):
        return Declined("the operand is a number")
    kept = rows_along((Spec(x.dtype, outputs[0].shape, x.strides, x.aligned), *outputs), axis)
    if isinstance(kept, Declined):
        return kept
    problem = SortProblem(runtime, kept, x.shape[axis], x.strides[axis], x.dtype, descending)
    return radix.build(problem) if radix.fits(problem) else cpu_merge.build(problem)


LOWERINGS = {"sort_pairs": _sort, "topk": _topk}
