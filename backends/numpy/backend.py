"""The contract in NumPy: device memory is host memory, and every call computes before it returns.

This is the smallest complete backend with native kernels, and the reference that other backends are compared with.
"""

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
from polyhal.hal.errors import BackendError, OutOfMemoryError, message
from polyhal.hal.layout import Ref, Spec
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
    UserKernel,
)

_HALF_PRECISION = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def _total_memory() -> int:
    """Return the bytes of memory of this machine; 0 if the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
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
    """Return the one device, which every machine has."""
    return [_info("")]


def create(selector: str) -> CoreNumpyBackend:
    """Open the device for "" or "0"; `no_f64`, `contiguous_only` and `tiny_mem` are restricted variants for tests."""
    if selector in ("", "0"):
        return NumpyBackend(_info(""))
    if selector == "no_f64":
        return NumpyBackend(_info(selector), missing=frozenset({dtypes.float64}))
    if selector == "contiguous_only":
        return CoreNumpyBackend(_info(selector))
    if selector == "tiny_mem":
        return NumpyBackend(_info(selector), memory=1 << 20)
    raise ValueError(f"NumPy has no device {selector!r}; expected no_f64, contiguous_only, tiny_mem or nothing")


class CoreNumpyBackend:
    """The required members of the contract, and no others.

    It neither stores nor computes in dtypes that are `missing`, and checks that the arguments of core methods are contiguous
    and not empty, as the contract promises. `memory` limits the bytes that can be allocated; 0 means that only the host does.
    """

    _minimal = True

    def __init__(
        self,
        info: DeviceInfo,
        *,
        missing: frozenset[dtypes.DType] = frozenset(),
        memory: int = 0,
    ) -> None:
        self.info = info if not memory else replace(info, memory=memory)
        supported, minimal = frozenset(dtypes.ALL) - missing, self._minimal
        self.capabilities = Capabilities(
            storage=supported,
            compute=supported,
            unary=frozenset() if minimal else frozenset(UNARY) - REQUIRED_UNARY,
            binary=frozenset() if minimal else frozenset(BINARY) - REQUIRED_BINARY,
            reduce=frozenset() if minimal else frozenset(REDUCE) - REQUIRED_REDUCE,
            unified_memory=True,
            limits=Limits(max_allocation=memory // 2),
            suballocation=True,
            reference=True,
        )
        self._memory = memory
        self._allocated = 0
        self._live: set[int] = set()
        """The `id` of each handle that was not released."""

    # --- memory -----------------------------------------------------------------------------------------------------

    def memory_available(self) -> int:
        """Return what is left of the limit, or of the whole memory of this machine, whatever other programs use."""
        return (self._memory or self.info.memory) - self._allocated

    def allocate(self, nbytes: int) -> Handle:
        """Allocate an array of bytes. Raises OutOfMemoryError."""
        limit = self.capabilities.limits.max_allocation
        if self._memory and (nbytes > limit or nbytes > self.memory_available()):
            problem = f"{nbytes} bytes asked for, {self.memory_available()} left"
            raise OutOfMemoryError(message(None, problem, device=self.info.name))
        try:
            handle = np.empty(nbytes, np.uint8)
        except MemoryError as error:
            raise OutOfMemoryError(message(None, f"the host has no {nbytes} bytes", device=self.info.name)) from error
        self._live.add(id(handle))
        self._allocated += nbytes
        return handle

    def deallocate(self, handle: Handle) -> None:
        """Forget an allocation; the garbage collector frees its memory. Raises BackendError if it was released before."""
        if id(handle) not in self._live:
            raise BackendError(message(None, "this memory was released before", device=self.info.name))
        self._live.remove(id(handle))
        self._allocated -= handle.nbytes

    def copy_to_device(self, src: memoryview, dst: Handle, offset: int) -> None:
        dst[offset : offset + src.nbytes] = np.frombuffer(src, np.uint8)

    def copy_from_device(self, src: Handle, offset: int, dst: memoryview) -> None:
        np.frombuffer(dst, np.uint8)[:] = src[offset : offset + dst.nbytes]

    def synchronize(self) -> None:
        """Return at once: nothing is ever pending."""

    # --- core -------------------------------------------------------------------------------------------------------

    def fill(self, value: Number, out: Ref) -> None:
        array(out)[...] = _in_range(value, out)

    def copy(self, src: Ref, out: Ref) -> None:
        with np.errstate(all="ignore"):
            np.copyto(array(out), array(src), casting="unsafe")

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        self._check(x, out)
        _store(UNARY[op](_upcast(array(x))), out)

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        self._check(a, b, out)
        _store(BINARY[op](_upcast(array(a)), _upcast(array(b))), out)

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        self._check(cond, a, b, out)
        array(out)[...] = np.where(array(cond), array(a), array(b))

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        self._check(x, out)
        _store(REDUCE[op](_upcast(array(x))), out)

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        self._check(a, b, out)
        with np.errstate(all="ignore"):
            _store(np.matmul(_upcast(array(a)), _upcast(array(b))), out)

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        self._check(index, x, out)
        rows, table = array(index), array(x)
        in_range = (rows >= 0) & (rows < len(table))
        array(out)[...] = np.where(in_range[:, None], table[np.where(in_range, rows, 0)], table.dtype.type(0))

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        self._check(index, src, out)
        rows, target = array(index), array(out)
        in_range = (rows >= 0) & (rows < len(target))
        np.add.at(target, rows[in_range], array(src)[in_range])

    def _check(self, *refs: Ref) -> None:
        """Raise AssertionError if the framework breaks its promises to a minimal device."""
        if self._minimal:
            for ref in refs:
                if not ref.is_contiguous or not ref.size:
                    raise AssertionError(
                        f"a core method received {ref}; the contract promises contiguous and non-empty"
                    )


class NumpyBackend(CoreNumpyBackend):
    """The NumPy device: core methods with all optional names, on any layout, and every op as one kernel."""

    _minimal = False

    def lower(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        """Run any op by its reference function. Half precision is computed in float32 and rounded once, when it is stored."""
        definition = OPS[op]
        if definition.family in ("elementwise", "movement", "creation"):
            return Declined("the core methods are as fast")
        return _launch(op, definition.reference, inputs, params)

    def compile_kernel(
        self,
        kernel: UserKernel,
        inputs: tuple[InputSpec | None, ...],
        outputs: tuple[Spec, ...],
        params: Mapping[str, Any],
        grid: tuple[int, ...],
        group: tuple[int, ...],
    ) -> Launch | Declined:
        """Run a user's kernel by its NumPy function."""
        function = kernel.sources.get("numpy")
        if function is None:
            return Declined(f"{kernel.name} has no NumPy function")
        return _launch(kernel.name, function, inputs, params)


def _launch(
    name: str, function: Callable[..., Any], inputs: tuple[InputSpec | None, ...], params: Mapping[str, Any]
) -> SimpleLaunch:
    """Return a launch that stores what a function of arrays returns."""
    is_tensor = [isinstance(spec, Spec) for spec in inputs]
    count = len(inputs)

    def run(*args: Any) -> None:
        arrays = [_upcast(array(x)) if t else x for t, x in zip(is_tensor, args[:count], strict=True)]
        with np.errstate(all="ignore"):
            result = function(*arrays, **params)
            for value, out in zip(result if isinstance(result, tuple) else (result,), args[count:], strict=True):
                array(out)[...] = value

    return SimpleLaunch(f"numpy {name}", run)


def array(ref: Ref) -> np.ndarray:
    """Return the elements of `ref` as a view of its memory."""
    spec = ref.spec
    size = spec.dtype.itemsize
    strides = tuple([s * size for s in spec.strides])
    return np.ndarray(spec.shape, spec.dtype.numpy, buffer=ref.handle, offset=ref.offset * size, strides=strides)


def _upcast(x: np.ndarray) -> np.ndarray:
    """Return values of half precision as float32, so that a formula rounds once, when its result is stored."""
    return x.astype(np.float32) if x.dtype in _HALF_PRECISION else x


def _in_range(value: Number, out: Ref) -> Number:
    """Wrap an integer to the range of an integer dtype; NumPy refuses it outside."""
    if type(value) is int and out.dtype.is_integral:
        value &= (1 << out.dtype.bits) - 1
        return value - (1 << out.dtype.bits) if out.dtype.kind == "int" and value >> (out.dtype.bits - 1) else value
    return value


def _store(value: Any, out: Ref) -> None:
    """Cast a result to the dtype of `out` and store it."""
    with np.errstate(all="ignore"):
        np.copyto(array(out), value, casting="unsafe")
