"""Ops computed on the host: NumPy arrays for what a device holds, and the results copied to it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal.hal.layout import Ref
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.planning.core_member import Run
from polyhal.hal.protocol import ComputeBackend


def upload_run(backend: ComputeBackend, make: Callable[[Sequence[Any]], Any]) -> Run:
    """A run that computes on the host what `make` says, an array or a tuple of them, and copies it to the outputs."""

    def run(args: Sequence[Any], outs: Sequence[Ref]) -> None:
        result = make(args)
        for array, out in zip(result if isinstance(result, tuple) else (result,), outs, strict=True):
            if out.size:
                dense = np.ascontiguousarray(np.broadcast_to(array, out.shape), dtype=out.dtype.numpy)
                backend.copy_to_device(byte_view(dense), out.handle, out.offset * out.dtype.itemsize)

    return run


def reference(op: OpDef, arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """What an op's reference makes of arrays; NaN, infinities and means of nothing are values here and warn nobody."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return op.reference(*arrays, **params)


def byte_view(array: np.ndarray) -> memoryview:
    """The bytes of a contiguous array, of any dtype, without a copy."""
    return array.reshape(-1).view(np.uint8).data
