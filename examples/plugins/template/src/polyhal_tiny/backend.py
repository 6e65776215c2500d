"""The contract on an imaginary device: its memory is a bytearray, and it can run NumPy functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.capabilities import Capabilities, DeviceInfo, DeviceType
from polyhal.hal.layout import Ref

INFO = DeviceInfo("tiny", "Tiny device", DeviceType.CPU, memory=1 << 30, driver="1.0", id="tiny-0", selector="0")


def probe() -> list[DeviceInfo]:
    """Return the available devices. If a driver is missing, raise an error with installation advice."""
    return [INFO]


def view(ref: Ref) -> np.ndarray:
    """Return the elements of `ref` as an array over the device's memory."""
    kind = ref.dtype.numpy
    strides = tuple(step * kind.itemsize for step in ref.strides)
    return np.ndarray(ref.shape, kind, ref.handle, ref.offset * kind.itemsize, strides)


class Memory:
    """Memory and transfers of the contract."""

    info = INFO
    capabilities = Capabilities(compute=frozenset(dtypes.ALL) - {dtypes.float16, dtypes.bfloat16})

    def memory_available(self) -> int:
        return INFO.memory

    def allocate(self, nbytes: int) -> bytearray:
        return bytearray(nbytes)

    def deallocate(self, handle: bytearray) -> None:
        """No-op: the garbage collector releases the memory."""

    def copy_to_device(self, src: memoryview, dst: bytearray, offset: int) -> None:
        dst[offset : offset + src.nbytes] = src

    def copy_from_device(self, src: bytearray, offset: int, dst: memoryview) -> None:
        dst[:] = memoryview(src)[offset : offset + dst.nbytes]

    def synchronize(self) -> None:
        """No-op: work is never pending."""


def divide(a: np.ndarray, b: np.ndarray) -> Any:
    """Divide floats by IEEE 754, and round integers towards zero, unlike NumPy, which rounds down."""
    if a.dtype.kind == "f":
        return a / b
    quotient = a // b
    return quotient + ((quotient < 0) & (quotient * b != a))


UNARY: dict[str, Callable[..., Any]] = {name: getattr(np, name) for name in ("exp", "log", "sqrt", "sin", "floor")}
UNARY |= {"neg": np.negative, "not": np.invert}
BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": divide, "max": np.maximum, "lt": np.less, "eq": np.equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip
REDUCE: dict[str, Callable[..., Any]] = {"sum": np.sum, "max": np.max, "prod": np.prod}


class TinyBackend(Memory):
    """Arithmetic of the contract."""

    def __init__(self, selector: str) -> None:
        """Open the device that `probe` listed with this selector."""

    def _run(self, function: Callable[..., Any], out: Ref, *inputs: Ref) -> None:
        with np.errstate(all="ignore"):  # on a device, NaN and infinity are values, not errors
            np.copyto(view(out), function(*map(view, inputs)), casting="unsafe")

    def fill(self, value: float, out: Ref) -> None:
        view(out)[...] = value

    def copy(self, src: Ref, out: Ref) -> None:
        self._run(lambda x: x, out, src)

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        self._run(UNARY[op], out, x)

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        self._run(BINARY[op], out, a, b)

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        self._run(np.where, out, cond, a, b)

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        self._run(lambda values: REDUCE[op](values, axis=-1), out, x)

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        self._run(np.matmul, out, a, b)

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        rows, table = view(index), view(x)
        inside = (rows >= 0) & (rows < len(table))
        view(out)[...] = np.where(inside[:, None], table[np.where(inside, rows, 0)], 0)

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        rows, table = view(index), view(out)
        inside = (rows >= 0) & (rows < len(table))
        np.add.at(table, rows[inside], view(src)[inside])
