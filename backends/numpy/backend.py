"""The contract in NumPy: device memory is host memory, every launch runs at once."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from polyhal.backends.numpy.kernels import BINARY, REDUCE, UNARY
from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceInfo, DeviceType, Limits
from polyhal.hal.errors import OutOfMemoryError, message
from polyhal.hal.layout import Ref, ScalarSpec, Spec
from polyhal.hal.ops import OPS
from polyhal.hal.protocol import (
    REQUIRED_BINARY,
    REQUIRED_REDUCE,
    REQUIRED_UNARY,
    Declined,
    Handle,
    InputSpec,
    Launch,
    Number,
    SimpleLaunch,
)

_HALF = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def _total_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system, or it does not tell
        return 0


def _info(selector: str) -> DeviceInfo:
    name = f"NumPy on {platform.processor() or platform.machine()}"
    return DeviceInfo(
        "numpy",
        name,
        DeviceType.CPU,
        _total_memory(),
        f"NumPy {np.__version__}",
        f"numpy{selector and '-' + selector}",
        selector,
    )


def probe() -> Sequence[DeviceInfo]:
    """NumPy is always there."""
    return [_info("")]


def create(selector: str) -> NumpyBackend:
    """The plain device for "" or "0"; `no_f64`, `contiguous_only` and `tiny_mem` are poorer ones for tests."""
    if selector in ("", "0"):
        return NumpyBackend(_info(""))
    if selector == "no_f64":
        return NumpyBackend(_info(selector), missing=frozenset({dtypes.float64}))
    if selector == "contiguous_only":
        return NumpyBackend(_info(selector), minimal=True)
    if selector == "tiny_mem":
        return NumpyBackend(_info(selector), memory=1 << 20)
    raise ValueError(f"NumPy has no device {selector!r}; expected no_f64, contiguous_only, tiny_mem or nothing")


class NumpyBackend:
    """One NumPy device.

    `missing` dtypes are neither stored nor computed. A `minimal` device has the required members only and checks that
    the framework keeps its promises about their arguments. `memory` limits the bytes that can be allocated.
    """

    def __init__(
        self,
        info: DeviceInfo,
        *,
        missing: frozenset[dtypes.DType] = frozenset(),
        minimal: bool = False,
        memory: int = 0,
    ) -> None:
        self.info = info if not memory else replace(info, memory=memory)
        have = frozenset(dtypes.ALL) - missing
        self.capabilities = Capabilities(
            storage=have,
            compute=have,
            unary=frozenset() if minimal else frozenset(UNARY) - REQUIRED_UNARY,
            binary=frozenset() if minimal else frozenset(BINARY) - REQUIRED_BINARY,
            reduce=frozenset() if minimal else frozenset(REDUCE) - REQUIRED_REDUCE,
            unified_memory=True,
            limits=Limits(max_allocation=memory // 2),
            suballocation=True,
            reference=True,
        )
        self._minimal = minimal
        self._memory = memory
        self._allocated = 0

    # --- memory -----------------------------------------------------------------------------------------------------

    def memory_available(self) -> int:
        return (self._memory or self.info.memory) - self._allocated

    def allocate(self, nbytes: int) -> Handle:
        if self._memory and (
            nbytes > self.capabilities.limits.max_allocation or self._allocated + nbytes > self._memory
        ):
            raise OutOfMemoryError(
                message(None, f"{nbytes} bytes asked for, {self.memory_available()} left", device=self.info.name)
            )
        try:
            handle = np.empty(nbytes, np.uint8)
        except MemoryError as error:
            raise OutOfMemoryError(message(None, f"the host has no {nbytes} bytes", device=self.info.name)) from error
        self._allocated += nbytes
        return handle

    def deallocate(self, handle: Handle) -> None:
        self._allocated -= handle.nbytes

    def copy_to_device(self, src: memoryview, dst: Handle, offset: int) -> None:
        dst[offset : offset + src.nbytes] = np.frombuffer(src, np.uint8)

    def copy_from_device(self, src: Handle, offset: int, dst: memoryview) -> None:
        np.frombuffer(dst, np.uint8)[:] = src[offset : offset + dst.nbytes]

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    # --- core -------------------------------------------------------------------------------------------------------

    def fill(self, value: Number, out: Ref) -> None:
        array(out)[...] = value

    def copy(self, src: Ref, out: Ref) -> None:
        with np.errstate(all="ignore"):
            np.copyto(array(out), array(src), casting="unsafe")

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        self._check(x, out)
        _store(UNARY[op](_wide(array(x))), out)

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        self._check(a, b, out)
        _store(BINARY[op](_wide(array(a)), _wide(array(b))), out)

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        self._check(cond, a, b, out)
        array(out)[...] = np.where(array(cond), array(a), array(b))

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        self._check(x, out)
        _store(REDUCE[op](_wide(array(x))), out)

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        self._check(a, b, out)
        with np.errstate(all="ignore"):
            _store(np.matmul(_wide(array(a)), _wide(array(b))), out)

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        self._check(index, x, out)
        rows, table = array(index), array(x)
        inside = (rows >= 0) & (rows < len(table))
        array(out)[...] = np.where(inside[:, None], table[np.where(inside, rows, 0)], table.dtype.type(0))

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        self._check(index, src, out)
        rows, target = array(index), array(out)
        inside = (rows >= 0) & (rows < len(target))
        np.add.at(target, rows[inside], array(src)[inside])

    # --- lowering ---------------------------------------------------------------------------------------------------

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """NumPy runs any op by its reference, in float32 where the tensors are of half precision."""
        if self._minimal:
            return Declined("this variant has the required members only")
        definition = OPS[op]
        if definition.family in ("elementwise", "movement", "creation"):
            return Declined("the core methods are as fast")
        numbers = frozenset(i for i, s in enumerate(inputs) if isinstance(s, ScalarSpec))
        count = len(inputs)
        reference = definition.reference

        def run(*args: Any) -> None:
            arrays = [x if x is None or i in numbers else _wide(array(x)) for i, x in enumerate(args[:count])]
            with np.errstate(all="ignore"):
                result = reference(*arrays, **params)
                for value, out in zip(result if isinstance(result, tuple) else (result,), args[count:], strict=True):
                    array(out)[...] = value

        return SimpleLaunch(f"numpy {op}", run)

    def _check(self, *refs: Ref) -> None:
        if self._minimal:
            for ref in refs:
                if not ref.is_contiguous or not ref.size:
                    raise AssertionError(
                        f"a core method received {ref}; the contract promises contiguous and non-empty"
                    )


def array(ref: Ref) -> np.ndarray:
    """The elements of `ref` as a NumPy view of its memory."""
    dtype = ref.dtype.numpy
    flat = ref.handle[: ref.handle.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
    if ref.is_contiguous:
        return flat[ref.offset : ref.offset + ref.size].reshape(ref.shape)  # type: ignore[no-any-return]
    strides = tuple(s * dtype.itemsize for s in ref.strides)
    return np.ndarray(ref.shape, dtype, buffer=flat, offset=ref.offset * dtype.itemsize, strides=strides)


def _wide(x: np.ndarray) -> np.ndarray:
    """Half precision computes in float32, which rounds once, at the store."""
    return x.astype(np.float32) if x.dtype in _HALF else x


def _store(value: Any, out: Ref) -> None:
    with np.errstate(all="ignore"):
        np.copyto(array(out), value, casting="unsafe")


Kernel = Callable[..., Any]
