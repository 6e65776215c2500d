"""A backend with the little that the framework adds: the tests of kernels run on it, without pool, planning or dispatch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Ref, ScalarSpec, Spec, contiguous
from polyhal.hal.protocol import Declined, Launch


class Harness:
    """Upload, allocate, download, and run an op through `lower`, on one opened backend."""

    def __init__(
        self,
        backend: Any,
        opened: Callable[[Mapping[str, bool | int]], Any] | None = None,
        *,
        may_decline: bool = False,
    ) -> None:
        """`opened` opens the same device once more, with some quirks switched on or off.

        Tests of an op that the backend declines are skipped if it `may_decline`, and fail otherwise.
        """
        self.backend = backend
        self._opened = opened
        self._may_decline = may_decline

    def with_quirk(self, **quirks: bool | int) -> Harness:
        """The device opened once more, with these quirks switched on or off for kernels, lowering, memory and queues."""
        assert self._opened is not None
        return Harness(self._opened(quirks), self._opened)

    def upload(self, array: Any, dtype: DType | None = None) -> Ref:
        """A contiguous Ref that holds `array`."""
        given = np.asarray(array)
        d = dtype or dtypes.as_dtype(given.dtype)
        dense = np.ascontiguousarray(given.astype(d.numpy))
        ref = self.empty(d, given.shape)
        self.backend.copy_to_device(memoryview(dense.reshape(-1).view(np.uint8)), ref.handle, 0)
        return ref

    def empty(self, dtype: DType, shape: Sequence[int]) -> Ref:
        nbytes = max(1, math.prod(shape)) * dtype.itemsize
        return Ref(self.backend.allocate(nbytes), contiguous(dtype, tuple(shape)))

    def view(self, ref: Ref, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Ref:
        """Equal memory through another layout."""
        at = ref.offset + offset
        return Ref(ref.handle, Spec(ref.dtype, shape, strides, at % 16 == 0), at)

    def download(self, ref: Ref) -> np.ndarray:
        """The elements of a contiguous Ref."""
        out = np.empty(ref.shape, ref.dtype.numpy)
        flat = memoryview(out.reshape(-1).view(np.uint8))
        self.backend.copy_from_device(ref.handle, ref.offset * ref.dtype.itemsize, flat)
        return out

    def accepted(self, answer: Launch | Declined) -> Launch:
        """Return the launch that the backend answered. Fails, or skips the test, if it declined the call."""
        if isinstance(answer, Declined):
            if self._may_decline:
                pytest.skip(answer.reason)
            raise AssertionError(answer.reason)
        return answer

    def stores(self, *kinds: DType) -> bool:
        """Return whether the device stores all dtypes."""
        return all(kind in self.backend.capabilities.storage for kind in kinds)

    @property
    def uses_cpu_kernels(self) -> bool:
        """Return whether the backend has kernels for CPUs and uses them on this device."""
        return bool(getattr(getattr(self.backend, "features", None), "cpu", False))

    @property
    def index_dtype(self) -> type:
        """Return the NumPy dtype of indices: int64 if the device stores it."""
        return np.int64 if self.stores(dtypes.int64) else np.int32

    def run(self, op: str, inputs: Sequence[Any], result: DType, shape: Sequence[int], **params: Any) -> np.ndarray:
        """The op's output of dtype `result`. Inputs are Refs, Python numbers or None."""
        specs = tuple(_spec(x) for x in inputs)
        out = self.empty(result, shape)
        if op == "fmod":  # a name of the contract only
            self.backend.binary(op, *inputs, out)
            return self.download(out)
        launch = self.accepted(self.backend.lower(op, specs, (out.spec,), params))
        workspace = [self.backend.allocate(n) for n in launch.workspace]
        launch(*inputs, out, *workspace)
        return self.download(out)


def as_gpu(features: Any, **facts: Any) -> Any:
    """The features of a processor, taken for a GPU with local memory on the chip."""
    return replace(features, cpu=False, local_memory_is_real=True, **facts)


def _spec(x: Any) -> Any:
    if x is None or isinstance(x, Ref):
        return x if x is None else x.spec
    return ScalarSpec(dtypes.bool_ if isinstance(x, bool) else dtypes.int64 if isinstance(x, int) else dtypes.float32)
