"""Conversions of tensors: to other devices, to the host, to other dtypes, under PyTorch's and the Array API's names."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.conversion import names_dtype
from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.core.memory.readback import combined
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype
from polyhal.hal.errors import message
from polyhal.hal.ops import FUNCTIONS
from polyhal.hal.ops.returns import Returns, returns

if TYPE_CHECKING:
    from concurrent.futures import Future

    from polyhal.memory_format import MemoryFormat
    from polyhal.tensor import Tensor

_cast, _copy = FUNCTIONS["cast"], FUNCTIONS["copy"]


class Conversions:
    """The methods of tensors that change the device or the dtype. Tensors that need no change are returned as they are."""

    __slots__ = ()

    device: Device
    dtype: Any

    @returns(Returns.EITHER)
    def to(
        self,
        *targets: Any,
        device: Device | str | None = None,
        dtype: object = None,
        non_blocking: builtins.bool = False,
        copy: builtins.bool = False,
        memory_format: MemoryFormat | None = None,
    ) -> Tensor:
        """Return the tensor on another device, in another dtype, or both: `x.to("opencl")`, `x.to(polyhal.float16)`.

        Another tensor specifies its device and dtype. "cpu" and "gpu" are the best device of that type. With `copy` the
        result has memory of its own. With `non_blocking` a copy to a device that supports it does not wait for
        the work enqueued there; reading from a device always waits, so that no wrong value is ever seen. `memory_format` is
        a no-op.
        """
        flags = [t for t in targets if isinstance(t, builtins.bool)]
        non_blocking = non_blocking or flags[:1] == [True]
        copy = copy or (len(flags) > 1 and flags[1])
        out: Any = self
        for target in (*targets, device, dtype):
            if target is not None and not isinstance(target, builtins.bool):
                out = _converted(out, target, non_blocking)
        if copy and out is self:
            out = _copy(out)
        result: Tensor = out
        return result

    def numpy_async(self) -> Future[np.ndarray]:
        """Start to copy the elements to a new NumPy array. Returns its future; the program goes on meanwhile.

        The array holds the values at the time of the call: the tensor may be changed or released at once. The future raises
        the typed error of work that failed, and cannot be cancelled. Its callbacks may run on a thread of the device's
        driver, so they must neither block nor use the device. Devices without asynchronous copies wait here instead.
        """
        this: Any = self
        if self.dtype.kind != "complex":
            return dispatch.thread.executor.read_async(this)
        out = np.empty(this.shape, self.dtype.numpy)

        def join(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
            out.real, out.imag = real, imag
            return out

        return combined((this.real.numpy_async(), this.imag.numpy_async()), join)

    @returns(Returns.EITHER)
    def astype(self, dtype: object, copy: builtins.bool = True) -> Tensor:
        """Cast to another dtype. With `copy`, the default, always in new memory."""
        kind = as_dtype(dtype)
        same: Any = self
        result: Tensor = (_copy(self) if copy else same) if kind is self.dtype else _cast(self, kind)
        return result

    @returns(Returns.EITHER)
    def to_device(self, device: Device | str, /, *, stream: object = None) -> Tensor:
        """Move to another device. Raises ValueError for a `stream`: devices order transfers by themselves."""
        if stream is not None:
            problem = f"got stream {stream!r}"
            raise ValueError(message("to_device", problem, expected="None", fix="leave stream out"))
        return self.to(Device(device))

    @returns(Returns.EITHER)
    def type_as(self, other: Tensor) -> Tensor:
        """Cast to the dtype of another tensor."""
        return self.to(other.dtype)

    @returns(Returns.EITHER)
    def cpu(self) -> Tensor:
        """Move to the best device of type CPU, as `.to("cpu")` does. `.numpy()` makes a NumPy array."""
        return self.to(Device("cpu"))

    @returns(Returns.EITHER)
    def bool(self) -> Tensor:
        """Cast to bool."""
        return self.to(dtypes.bool_)

    @returns(Returns.EITHER)
    def byte(self) -> Tensor:
        """Cast to uint8."""
        return self.to(dtypes.uint8)

    @returns(Returns.EITHER)
    def char(self) -> Tensor:
        """Cast to int8."""
        return self.to(dtypes.int8)

    @returns(Returns.EITHER)
    def short(self) -> Tensor:
        """Cast to int16."""
        return self.to(dtypes.int16)

    @returns(Returns.EITHER)
    def int(self) -> Tensor:
        """Cast to int32."""
        return self.to(dtypes.int32)

    @returns(Returns.EITHER)
    def long(self) -> Tensor:
        """Cast to int64."""
        return self.to(dtypes.int64)

    @returns(Returns.EITHER)
    def cfloat(self) -> Tensor:
        """Cast to complex64."""
        return self.to(dtypes.complex64)

    @returns(Returns.EITHER)
    def cdouble(self) -> Tensor:
        """Cast to complex128."""
        return self.to(dtypes.complex128)

    @returns(Returns.EITHER)
    def half(self) -> Tensor:
        """Cast to float16."""
        return self.to(dtypes.float16)

    @returns(Returns.EITHER)
    def bfloat16(self) -> Tensor:
        """Cast to bfloat16."""
        return self.to(dtypes.bfloat16)

    @returns(Returns.EITHER)
    def float(self) -> Tensor:
        """Cast to float32."""
        return self.to(dtypes.float32)

    @returns(Returns.EITHER)
    def double(self) -> Tensor:
        """Cast to float64."""
        return self.to(dtypes.float64)


def _converted(x: Tensor, target: Any, non_blocking: bool) -> Any:
    """Return the tensor on a device, in a dtype, or in the likeness of another tensor."""
    if hasattr(target, "ref"):
        return _converted(_converted(x, target.device, non_blocking), target.dtype, non_blocking)
    if isinstance(target, Device) or (isinstance(target, str) and not names_dtype(target)):
        device = Device(target)
        if device is x.device:
            return x
        from polyhal.tape.function import transfer

        return transfer(x, device, non_blocking)
    kind: DType = as_dtype(target)
    return x if kind is x.dtype else _cast(x, kind)
