"""Arrays of other libraries in the memory of a device, as tensors: by DLPack, or else by CUDA's array interface."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.core import dispatch
from polyhal.hal.core.memory.foreign import import_device_memory
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, as_dtype, component
from polyhal.hal.errors import DeviceUnavailableError, UnsupportedDTypeError, message
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous, contiguous_strides, extent
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor, make_tensor, wrap
from polyhal.tensor.dlpack_capsules import VERSION, ArrayInMemory, read_capsule

if TYPE_CHECKING:
    from polyhal.hal.core.memory.foreign import ForeignMemory

_CUDA = 2
_BACKENDS = {_CUDA: "cuda"}
"""Names of devices by DLPack's kind of memory."""
_DEFAULT_STREAM = 1
"""DLPack's number of CUDA's default stream."""
_INTERFACE = "__cuda_array_interface__"


def is_on_device(x: Any) -> bool:
    """Return whether `x` is an array of another library in CUDA memory."""
    return not isinstance(x, Tensor) and hasattr(x, _INTERFACE)


def imported(x: Any, device: Device | str | None, copy: bool | None = None) -> Tensor | None:
    """Return a tensor over the memory of an array of another library; None for one in the host's memory.

    The tensor's device is the array's. A copy is made only if `copy` or if the array is read-only, or to reach another
    `device`. Raises ValueError with `copy=False` where a copy is needed, UnsupportedDTypeError, and BufferError for memory
    of a device that Polyhal does not have.
    """
    if not hasattr(type(x), "__dlpack_device__"):
        return _imported_by_interface(x, device, copy) if is_on_device(x) else None
    kind, number = map(int, x.__dlpack_device__())
    if kind not in _BACKENDS:
        return None
    found = _owner((kind, number), device)
    if found is None:
        return _copied_on_host(x, device, copy)
    owner, foreign = found
    options: dict[str, Any] = {"stream": foreign.driver.stream_number()}
    try:
        capsule = x.__dlpack__(**options, max_version=VERSION)
    except TypeError:  # a producer from before versions
        capsule = x.__dlpack__(**options)
    return _placed(_shared(owner, foreign, read_capsule(capsule)), foreign, _DEFAULT_STREAM, device, copy)


def _imported_by_interface(x: Any, device: Device | str | None, copy: bool | None) -> Tensor:
    found = x.__cuda_array_interface__
    address, read_only = found["data"]
    dtype = _dtype(found["typestr"])
    if found.get("mask") is not None:
        raise BufferError(message("asarray", "the array has a mask", fix="pass its elements and its mask separately"))
    shape = tuple(int(n) for n in found["shape"])
    steps = found.get("strides")
    if steps is None:
        strides = contiguous_strides(shape)
    elif any(n % dtype.itemsize for n in steps):
        problem = f"the strides {steps}, in bytes, do not fit elements of {dtype.itemsize} bytes"
        raise BufferError(message("asarray", problem, fix="make the array contiguous"))
    else:
        strides = tuple(n // dtype.itemsize for n in steps)
    owner, foreign = _owner_of_address(address or 0, device)
    if (stream := found.get("stream")) is not None:
        if type(stream) is not int or stream < 1:
            expected = "1 for the default stream, 2 for the thread's, or the driver's handle of a stream"
            raise ValueError(message("asarray", f"the array names the stream {stream!r}", expected=expected))
        foreign.driver.wait_for_stream(stream)
    array = ArrayInMemory(address or 0, dtype, shape, strides, read_only, (x, found))
    return _placed(_shared(owner, foreign, array), foreign, stream or _DEFAULT_STREAM, device, copy)


def _dtype(typestr: str) -> DType:
    try:
        return as_dtype(np.dtype(typestr))
    except (TypeError, UnsupportedDTypeError) as error:
        problem = f"the array has elements of type {typestr!r}"
        fix = "use polyhal.from_dlpack for bfloat16, which has no type string"
        raise UnsupportedDTypeError(
            message("asarray", problem, expected="bool, integers or floats", fix=fix)
        ) from error


def _shared(device: Device, foreign: ForeignMemory, array: ArrayInMemory) -> tuple[Tensor, bool]:
    """Return the tensor in the memory of an array, and whether it must not be written."""
    dtype, shape, strides = array.dtype, array.shape, array.strides
    if dtype.is_complex:
        pairs = array._replace(dtype=component(dtype), shape=(*shape, 2), strides=(*(2 * n for n in strides), 1))
        parts, read_only = _shared(device, foreign, pairs)
        return FUNCTIONS["view_as_complex"](parts), read_only
    device.check_dtype(dtype)
    if 0 in shape:
        return wrap(device, *device.reserve(contiguous(dtype, shape))), False
    size = dtype.itemsize
    if array.address % size:
        problem = f"the address {array.address:#x} is not a multiple of the element's {size} bytes"
        raise BufferError(message("from_dlpack", problem, fix="copy the array in its own library first"))
    low, high = extent(shape, strides)
    buffer = import_device_memory(device, foreign, array.address + low * size, (high - low + 1) * size, array.owner)
    offset = buffer.start // size - low
    spec = Spec(dtype, shape, strides, offset % ALIGNMENT == 0)
    return wrap(device, buffer, Ref(buffer.handle, spec, offset)), array.read_only


def _placed(
    shared: tuple[Tensor, bool],
    foreign: ForeignMemory,
    stream: int,
    device: Device | str | None,
    copy: bool | None,
) -> Tensor:
    """Return the tensor itself, or a copy where one is needed; later work on the library's `stream` comes after the copy."""
    out, read_only = shared
    target = out.device if device is None else Device(device)
    if not copy and not read_only and target is out.device:
        return out
    if copy is False:
        reason = f"the array is on {out.device}" if target is not out.device else "the array is read-only"
        raise ValueError(message("from_dlpack", f"this takes a copy: {reason}", fix="leave copy=False out"))
    copied = out.to(target) if target is not out.device else FUNCTIONS["copy"](out)
    for number in {stream, _DEFAULT_STREAM}:
        foreign.driver.let_stream_wait(number)
    return copied


def _copied_on_host(x: Any, device: Device | str | None, copy: bool | None) -> Tensor:
    """Return a copy of an array in memory that no device of Polyhal reaches, if its library copies it to the host's memory."""
    if copy is False:
        raise ValueError(message("from_dlpack", "this takes a copy", fix="leave copy=False out"))
    try:
        array = np.from_dlpack(x, device="cpu", copy=True)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise _unreachable(x.__dlpack_device__()[1]) from error
    return make_tensor(array, None, device)


def _unreachable(number: int) -> BufferError:
    name = f"cuda:{number}"
    fix = f"polyhal.Device({name!r}) raises the reason; else copy the array to the host's memory first"
    return BufferError(message("from_dlpack", f"the array is in memory of {name}, which Polyhal cannot use", fix=fix))


def _owner(space: tuple[int, int], device: Device | str | None) -> tuple[Device, ForeignMemory] | None:
    """Return the device that has the memory: the requested or the default one if possible. None without one."""
    first = dispatch.target_device(device)
    for found in itertools.chain([first], _opened(f"{_BACKENDS[space[0]]}:{space[1]}")):
        if found.foreign is not None and found.foreign.space == space:
            return found, found.foreign
    return None


def _owner_of_address(address: int, device: Device | str | None) -> tuple[Device, ForeignMemory]:
    """Return the device that has the memory at an address, any for the address 0. Raises BufferError."""
    target = dispatch.target_device(device)
    found = (target, target.foreign) if target.foreign is not None else _owner((_CUDA, 0), None)
    if found is None:
        raise _unreachable(0)
    if not address:
        return found
    number = found[1].driver.number_of_device(address)
    if number is None:
        raise BufferError(message("asarray", f"{address:#x} is not an address of CUDA memory", device=found[0]))
    found = _owner((_CUDA, number), device)
    if found is None:
        raise _unreachable(number)
    return found


def _opened(name: str) -> Iterator[Device]:
    with contextlib.suppress(DeviceUnavailableError):
        yield Device(name)
