"""Sorting and the largest few along any axis: by digits on GPUs, by merging on CPUs and where local memory is scarce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyhal.backends.common.problems.rows import rows_along
from polyhal.backends.opencl.lowering.sort import cpu_merge, radix
from polyhal.backends.opencl.lowering.sort.problem import Sorting
from polyhal.backends.opencl.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, InputSpec, Launch


def _sort(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    return _ordered(runtime, "sort", inputs[0], outputs, params["axis"], params["descending"])


def _topk(
    runtime: Runtime, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
) -> Launch | Declined:
    return _ordered(runtime, "topk", inputs[0], outputs, params["axis"], params["largest"])


def _ordered(
    runtime: Runtime, name: str, x: InputSpec | None, outputs: tuple[Spec, ...], axis: int, descending: bool
) -> Launch | Declined:
    """The first of each row in order, as many as `outputs` hold."""
    assert isinstance(x, Spec)
    kept = Spec(x.dtype, outputs[0].shape, x.strides, x.aligned)
    found = rows_along((kept, *outputs), axis)
    if isinstance(found, Declined):
        return found
    job = Sorting(runtime, name, found, x.shape[axis], x.strides[axis], x.dtype, descending)
    return radix.build(job) if radix.suits(job) else cpu_merge.build(job)


LOWERINGS = {"sort_pairs": _sort, "topk": _topk}
