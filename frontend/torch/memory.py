"""Kernels on memory rather than elements: empty tensors, views, copies between devices, changes of geometry."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from polyhal.hal import dtypes, layout
from polyhal.hal.layout import Spec, contiguous_strides, extent
from polyhal.hal.ops import FUNCTIONS
from polyhal.torch import cuda_exchange, private, reads, tensors
from polyhal.torch.device import NAME, check_ordinal
from polyhal.torch.failures import as_pytorch
from polyhal.torch.storages import Storage

KERNELS: dict[str, Callable[..., Any]] = {}
"""Kernels by overload, as in `empty_strided.default`."""
ALLOWED = frozenset({"_has_compatible_shallow_copy_type.default"})
"""CompositeImplicitAutograd ops that may have a kernel: they have no gradient for it to cut off."""


F = TypeVar("F", bound=Callable[..., Any])


def _kernel(name: str) -> Callable[[F], F]:
    """Declare a kernel that allocates memory or computes. Polyhal's errors are translated to PyTorch's."""

    def declare(function: F) -> F:
        KERNELS[name] = as_pytorch(function)
        return function

    return declare


def _view(name: str) -> Callable[[F], F]:
    """Declare a kernel that only returns another view of memory. Errors are not translated, which saves a call per view."""

    def declare(function: F) -> F:
        KERNELS[name] = function
        return function

    return declare


@_kernel("_has_compatible_shallow_copy_type.default")
def keeps_its_object(x: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True, so that `module.to` changes parameters in place and keeps tied parameters and existing optimizers valid."""
    return True


@_kernel("empty.memory_format")
def empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    memory_format: Any = None,
    **options: Any,
) -> torch.Tensor:
    """Allocate memory, in row-major order or with channels last."""
    check_ordinal(device)
    kind = dtype or torch.get_default_dtype()
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        order = [0, *range(2, len(size)), 1]
        strides = [0] * len(size)
        for axis, stride in zip(order, contiguous_strides(tuple(size[i] for i in order)), strict=True):
            strides[axis] = stride
        return empty_strided(size, strides, dtype=kind)
    return tensors.allocate(size, kind)


@_kernel("empty_strided.default")
def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **options: Any,
) -> torch.Tensor:
    """Allocate memory for a shape and strides."""
    check_ordinal(device)
    size, stride, kind = tuple(size), tuple(stride), dtype or torch.get_default_dtype()
    if stride == contiguous_strides(size):
        return tensors.allocate(size, kind)
    _, last = extent(size, stride)
    return private.reinterpret(tensors.allocate((last + 1,), kind), size, stride, 0)


def _check_within(x: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> None:
    """Raise RuntimeError, as PyTorch does on the CPU, unless such a view of `x` is within its memory."""
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if stride and min(stride) < 0:
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    last = sum(map(operator.mul, size, stride)) - sum(stride)
    if last < x.numel() and offset == x.storage_offset() and x.is_contiguous():
        return  # within the elements of `x`
    itemsize = x.element_size()
    needed = (offset + last + 1) * itemsize
    there = tensors.storage_of(x).room
    if needed > there and 0 not in size:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {itemsize} "
            f"requiring a storage size of {needed} are out of bounds for storage of size {there}"
        )


@_view("as_strided.default")
def as_strided(x: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> torch.Tensor:
    """Return a view; PyTorch composes most other views from it. Raises RuntimeError if it exceeds the memory of `x`."""
    here: Any = x.storage_offset()
    there = here if offset is None else offset
    _check_within(x, size, stride, there)
    return private.reinterpret(x, size, stride, there - here)


@_view("as_strided_.default")
def as_strided_in_place(
    x: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> torch.Tensor:
    """Change the view in place; PyTorch composes `transpose_` and similar methods from it."""
    here: Any = x.storage_offset()
    there = here if offset is None else offset
    if isinstance(storage := x.untyped_storage(), Storage):
        _check_within(x, size, stride, there)
        tensors.share(x, storage, there, size, stride)
    else:  # a tensor of PyTorch's compiler, which has no memory on the device
        private.set_strides(x, size, stride, there)
    return x


@_view("_reshape_alias.default")
def reshape_alias(x: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """Return a view with strides that PyTorch has checked."""
    return private.reinterpret(x, size, stride, 0)


@_view("view.default")
def view(x: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Return a view in another shape. Raises RuntimeError if the strides do not allow it."""
    shape = list(size)
    if shape.count(-1) == 1:
        known = math.prod(n for n in shape if n != -1)
        if not known:
            raise RuntimeError(
                f"cannot reshape tensor of {x.numel()} elements into shape {list(size)} because the unspecified dimension "
                "size -1 can be any value and is ambiguous"
            )
        shape[shape.index(-1)] = x.numel() // known
    if math.prod(shape) != x.numel():
        raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {x.numel()}")
    found = layout.reshape(Spec(dtypes.float32, tuple(x.shape), x.stride()), tuple(shape))
    if found is None:
        raise RuntimeError(
            f"view size {list(size)} is not compatible with strides {list(x.stride())} of shape {list(x.shape)}: "
            "the elements are not stored in that order. Use .reshape(...) instead"
        )
    return private.reinterpret(x, found.shape, found.strides, 0)


@_view("view_as_real.default")
def view_as_real(x: torch.Tensor) -> torch.Tensor:
    """Return the parts of complex numbers along a new last axis."""
    if x.is_conj():
        raise RuntimeError("view_as_real doesn't work on unresolved conjugated tensors; call resolve_conj() first")
    here: Any = x.storage_offset()
    return _in_memory_of(x, x.dtype.to_real(), (*x.shape, 2), (*(2 * s for s in x.stride()), 1), 2 * here)


@_view("view_as_complex.default")
def view_as_complex(x: torch.Tensor) -> torch.Tensor:
    """Return complex numbers whose parts are the last axis."""
    here: Any = x.storage_offset()
    *shape, parts = x.shape or (0,)
    *strides, step = x.stride() or (0,)
    if parts != 2 or step != 1 or here % 2 or any(s % 2 for s in strides):
        raise RuntimeError(
            f"view_as_complex takes a last axis of 2 neighbours and other strides that are even, not shape {list(x.shape)} "
            f"and strides {list(x.stride())}"
        )
    return _in_memory_of(x, x.dtype.to_complex(), shape, [s // 2 for s in strides], here // 2)


def _in_memory_of(
    x: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    """Return a view of the memory of `x`, possibly of another dtype."""
    if x.dtype is dtype:
        return private.reinterpret(x, shape, strides, offset)
    out = private.new_tensor((0,), dtype)
    tensors.share(out, x.untyped_storage(), offset, shape, strides)
    return out


@_view("unfold.default")
def unfold(x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """Return sliding windows along an axis."""
    if not x.ndim:
        return private.reinterpret(x, (size,), (1,), 0)
    axis = dimension % x.ndim
    shape, strides = list(x.shape), list(x.stride())
    if size > shape[axis]:
        raise RuntimeError(f"maximum size for tensor at dimension {axis} is {shape[axis]} but size is {size}")
    shape.append(size)
    strides.append(strides[axis])
    shape[axis] = (shape[axis] - size) // step + 1
    strides[axis] *= step
    return private.reinterpret(x, shape, strides, 0)


@_kernel("resize_.default")
def resize(x: torch.Tensor, size: Sequence[int], *, memory_format: Any = None) -> torch.Tensor:
    """Change the shape in place. The elements in memory stay in their order; further ones are uninitialized."""
    strides = None
    if memory_format not in (None, torch.contiguous_format, torch.preserve_format):
        strides = torch.empty(size, device="meta", memory_format=memory_format).stride()
    if tuple(x.shape) != tuple(size) or strides not in (None, x.stride()):
        tensors.resize(x, size, strides)
    return x


@_kernel("set_.source_Storage_storage_offset")
def set_storage(
    x: torch.Tensor, source: Any, offset: int, size: Sequence[int], stride: Sequence[int] = ()
) -> torch.Tensor:
    """Make `x` a view of another storage. Raises RuntimeError if the storage is too small: it cannot grow."""
    size, stride = tuple(size), tuple(stride) or contiguous_strides(tuple(size))
    _, last = extent(size, stride)
    if last >= 0 and (offset + last + 1) * x.element_size() > source.nbytes():
        raise RuntimeError(f"Trying to resize storage that is not resizable: it has {source.nbytes()} bytes")
    tensors.share(x, source, offset, size, stride)
    return x


@_kernel("set_.source_Storage")
def set_whole_storage(x: torch.Tensor, source: Any) -> torch.Tensor:
    """Make `x` a flat view of another storage."""
    return set_storage(x, source, 0, (source.nbytes() // x.element_size(),))


@_view("_has_same_storage_numel.default")
def has_same_storage_size(x: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether the storages have as many elements, for forward mode: PyTorch's C++ code takes some for empty."""
    return _storage_length(x) == _storage_length(other)


@_kernel("_new_zeros_with_same_feature_meta.default")
def new_tangent(x: torch.Tensor, other: torch.Tensor, *, self_num_batch_dims: int = 0) -> torch.Tensor:
    """Return zeros in the layout of `other`, also in memory, for each of the first axes of `x`."""
    batch, length = tuple(x.shape[:self_num_batch_dims]), _storage_length(other)
    zeros = torch.zeros((*batch, length), dtype=other.dtype, device=other.device)
    strides = (*zeros.stride()[:-1], *other.stride())
    return torch.as_strided(zeros, (*batch, *other.shape), strides, other.storage_offset())


def _storage_length(x: torch.Tensor) -> int:
    return int(tensors.storage_of(x).nbytes()) // x.element_size()


@_kernel("set_.source_Tensor")
def set_tensor(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Make `x` a view equal to `source`."""
    offset: Any = source.storage_offset()
    tensors.share(x, source.untyped_storage(), offset, source.shape, source.stride())
    return x


@_kernel("copy_.default")
def copy(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy the elements of `source` to `x`, to, from or on the device. `non_blocking` has no effect."""
    if x.device.type != NAME:
        cuda_exchange.send(tensors.resolved(source), x)
    elif not x.numel():
        return x
    elif source.device.type != NAME:
        cuda_exchange.receive(x, source)
    else:
        value = tensors.resolved(source)
        if source is not x:
            tensors.check_overlap(tensors.unwrap(x), value)
        tensors.write(x, value)
    return x


@_kernel("_copy_from.default")
def copy_from(source: torch.Tensor, x: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Run `copy` with its arguments swapped."""
    return copy(x, source)


@_kernel("_copy_from_and_resize.default")
def copy_from_and_resize(source: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Resize `x` to the shape of `source`, and copy."""
    if x.shape != source.shape:
        x.resize_(source.shape)
    return copy(x, source)


@_kernel("_to_copy.default")
def to_copy(x: torch.Tensor, *, non_blocking: bool = False, **options: Any) -> torch.Tensor:
    """Copy to another dtype or device. PyTorch cannot request pinned memory of this device, so the copy never uses it."""
    return private.to_copy(x, **options)


@_kernel("clone.default")
def clone(x: torch.Tensor, *, memory_format: Any = torch.preserve_format) -> torch.Tensor:
    """Copy a tensor; a dense one keeps its order of axes, as in PyTorch."""
    if x.is_contiguous() and memory_format in (None, torch.preserve_format, torch.contiguous_format):
        return tensors.wrap(FUNCTIONS["copy"](tensors.resolved(x)))
    out = torch.empty_like(x, memory_format=memory_format or torch.preserve_format)
    return copy(out, x)


@_kernel("as_strided_scatter.default")
def as_strided_scatter(
    x: torch.Tensor, source: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> torch.Tensor:
    """Return functional `copy_` to a view: `x` with the viewed elements replaced by `source`."""
    start: Any = x.storage_offset()
    _check_within(x, size, stride, start if offset is None else offset)
    ref = tensors.root_of(x).ref
    whole = x if ref.offset == 0 and ref.spec.is_contiguous else clone(x)
    here: Any = whole.storage_offset()
    memory = tensors.wrap(FUNCTIONS["copy"](tensors.root_of(whole)))
    copy(_in_memory_of(memory, x.dtype, size, stride, here if offset is None else offset), source)
    return _in_memory_of(memory, x.dtype, whole.shape, whole.stride(), here)


@_kernel("_local_scalar_dense.default")
def local_scalar(x: torch.Tensor) -> Any:
    """Return the only element as a Python number."""
    number = tensors.unwrap(x).item()
    reads.note(number)
    return number


@_kernel("_assert_async.default")
def assert_nonzero(x: torch.Tensor) -> None:
    """Raise RuntimeError if the only element is zero."""
    assert_with_message(x, "Expected Tensor with single nonzero value, but got zero")


@_kernel("_assert_async.msg")
def assert_with_message(x: torch.Tensor, message: str) -> None:
    """Raise RuntimeError with a message if the only element is zero. It is read at once, as on the CPU."""
    if not x:
        raise RuntimeError(message or "Assertion is failed")


@_kernel("fill_.Scalar")
def fill(x: torch.Tensor, value: float) -> torch.Tensor:
    """Set all elements to a number."""
    tensors.write(x, value)
    return x


@_kernel("fill_.Tensor")
def fill_from(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Set all elements to the element of a 0-d tensor."""
    if value.ndim:
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions")
    tensors.write(x, tensors.unwrap(value))
    return x


@_kernel("zero_.default")
def zero(x: torch.Tensor) -> torch.Tensor:
    """Set all elements to 0."""
    tensors.write(x, 0)
    return x


@_view("record_stream.default")
def record_stream(x: torch.Tensor, stream: Any) -> None:
    """No-op: the device has one stream, which runs in order."""
