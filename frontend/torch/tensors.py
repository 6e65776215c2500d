"""Conversion between PyTorch tensors, whose storages own Polyhal buffers, and Polyhal tensors.

PyTorch keeps the Python object of a storage alive as long as the storage. Views, detached aliases and tensors saved by
autograd share the object, which therefore owns the buffer and returns it to the pool with its last user.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch.number_range import require_fit
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedDTypeError
from polyhal.hal.layout import ALIGNMENT, Ref, Spec, contiguous, contiguous_strides, extent, is_dense
from polyhal.hal.ops import FUNCTIONS
from polyhal.tensor import Tensor
from polyhal.tensor import wrap as polyhal_tensor
from polyhal.tensor.complex_tensor import ComplexTensor
from polyhal.torch import complex_parts, determinism, private
from polyhal.torch.device import NAME, current
from polyhal.torch.storages import attach

if TYPE_CHECKING:
    from polyhal.torch.storages import Storage

DTYPES: dict[torch.dtype, DType] = {
    getattr(torch, d.name.rstrip("_")): d for d in dtypes.ALL if hasattr(torch, d.name.rstrip("_"))
}
"""Polyhal's dtypes by PyTorch's real dtypes; memory holds complex tensors as real parts."""
TORCH_DTYPES = {ours: theirs for theirs, ours in {**DTYPES, **complex_parts.COMPLEX}.items()}

storage_of: Callable[[torch.Tensor], Any] = torch.Tensor.untyped_storage
"""Function that returns the storage of a tensor: a `Storage` for tensors of the device."""


class ElsewhereError(RuntimeError):
    """A tensor is on another device than the operands of its op."""


def dtype_of(dtype: torch.dtype) -> DType:
    """Return Polyhal's dtype for PyTorch's. Raises UnsupportedDTypeError."""
    try:
        return DTYPES[dtype]
    except KeyError:
        raise UnsupportedDTypeError(
            f"{dtype} is not supported on {NAME}; supported are {', '.join(map(str, DTYPES))}"
        ) from None


def root_of(x: torch.Tensor) -> Tensor:
    """Return the whole memory of the storage of `x`."""
    root: Tensor = storage_of(x).root
    return root


def wrap(x: Tensor) -> torch.Tensor:
    """Return a PyTorch tensor with a new storage around a Polyhal tensor."""
    if isinstance(x, ComplexTensor):
        return wrap_block(complex_parts.memory_of(x), TORCH_DTYPES[x.dtype], x.shape, None)
    ref = x.ref
    spec = ref.spec
    out = private.new_tensor(spec.shape, TORCH_DTYPES[spec.dtype])
    attach(storage_of(out), x)
    if ref.offset or out.stride() != spec.strides:
        return private.reinterpret(out, spec.shape, spec.strides, ref.offset)
    return out


def wrap_block(
    block: Tensor, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> torch.Tensor:
    """Return a PyTorch tensor in a contiguous block, in row-major order or with strides."""
    out = private.new_tensor(shape, dtype)
    attach(storage_of(out), block)
    offset = block.ref.offset
    if strides is None and not offset:
        return out
    return private.reinterpret(out, shape, out.stride() if strides is None else strides, offset)


def unwrap(x: torch.Tensor) -> Any:
    """Return the Polyhal tensor behind a PyTorch tensor of the device, or the number in a 0-d CPU tensor.

    Lazy conjugation and negation are resolved. Raises ElsewhereError for other tensors of other devices.
    """
    try:
        root = root_of(x)
    except AttributeError:
        if x.device.type == "cpu" and not x.ndim:
            return x.item()
        found = f"found one on {x.device}, of shape {tuple(x.shape)}"
        raise ElsewhereError(f"Expected all tensors to be on the same device, {NAME}:0, but {found}") from None
    ref = root.ref
    spec = ref.spec
    shape, strides = x.shape, x.stride()
    offset: Any = x.storage_offset()
    if offset == ref.offset and shape == spec.shape and strides == spec.strides and DTYPES.get(x.dtype) is spec.dtype:
        return root
    out = _view(x, root)
    if x.is_conj():
        out = FUNCTIONS["conj"](out)
    return FUNCTIONS["negative"](out) if x.is_neg() else out


def with_layout(x: torch.Tensor, spec: Spec) -> Tensor | None:
    """Return `unwrap(x)` if its layout is `spec`, outside of recordings; None for other layouts and for lazy negation.

    A small compiled step spends much time on its arguments: this does not describe the layout of each view again.
    """
    root = getattr(storage_of(x), "root", None)
    offset: Any = x.storage_offset()
    if root is None or x.shape != spec.shape or x.stride() != spec.strides or DTYPES.get(x.dtype) is not spec.dtype:
        return None
    ref = root.ref
    if offset == ref.offset and (ref.spec is spec or ref.spec == spec):
        return root  # type: ignore[no-any-return]
    if (spec.aligned and offset % ALIGNMENT) or ref.spec.dtype is dtypes.uint8 or x.is_neg():
        return None
    return polyhal_tensor(root.device, root.buffer, Ref(ref.handle, spec, offset))


def have_memory(*xs: torch.Tensor) -> bool:
    """Return whether these tensors have memory on the device, unlike tensors of a tracer or a transform."""
    try:
        return all(hasattr(x.untyped_storage(), "root") for x in xs)
    except (NotImplementedError, RuntimeError):  # functorch transforms hide the storage
        return False


def _view(x: torch.Tensor, root: Tensor) -> Tensor:
    """Return the stored elements of `x`, without resolving conjugation."""
    offset: Any = x.storage_offset()
    shape, strides = tuple(x.shape), x.stride()
    if root.ref.spec.dtype is dtypes.uint8:
        _check_room(x, offset)
    if x.dtype in complex_parts.PARTS:
        return complex_parts.view(root, x.dtype, shape, strides, offset)
    spec = Spec(dtype_of(x.dtype), shape, strides, offset % ALIGNMENT == 0)
    out = polyhal_tensor(root.device, root.buffer, Ref(root.ref.handle, spec, offset))
    if (recorder := dispatch.thread.executor.recorder) is not None:
        recorder.track(out, root)
    return out


def _check_room(x: torch.Tensor, offset: int) -> None:
    """Raise RuntimeError for a tensor whose storage was made smaller by `resize_`."""
    storage = storage_of(x)
    if not x.numel():
        return
    needed = (offset + extent(x.shape, x.stride())[1] + 1) * x.itemsize
    if needed > storage.room:
        raise RuntimeError(
            f"a tensor of shape {tuple(x.shape)} needs {needed} bytes, and its storage has {storage.room}: it was made smaller "
            "by resize_, as FSDP does with parameters between their uses"
        )


def resolved(x: torch.Tensor) -> Any:
    """Return `unwrap(x)` for copies, which PyTorch calls with unresolved conjugation and negation."""
    out = unwrap(x)
    return FUNCTIONS["negative"](out) if x.is_neg() and out is root_of(x) else out


def allocate(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Allocate an uninitialized contiguous tensor of the device."""
    if dtype in complex_parts.PARTS:
        return wrap_block(root_of(allocate((*shape, 2), dtype.to_real())), dtype, tuple(shape), None)
    device, kind, value = current(), dtype_of(dtype), determinism.initial_value(dtype_of(dtype))
    if dispatch.thread.executor.fuses_later:  # in a recorded step, only ops allocate memory
        made = FUNCTIONS["empty"](tuple(shape), kind, device=device)
        if value is not None:
            made.fill_(value)
        return wrap(made)
    buffer, ref = device.reserve(contiguous(kind, tuple(shape)))
    if value is not None and ref.size:
        device.backend.fill(value, ref)
    out = polyhal_tensor(device, buffer, ref)
    if (recorder := dispatch.thread.executor.recorder) is not None:
        recorder.capture_constant(out)
    return wrap(out)


def resize(x: torch.Tensor, shape: Sequence[int], strides: Sequence[int] | None = None) -> None:
    """Make `x` a dense tensor of `shape`, in row-major order by default.

    If the memory is too small, its elements move to a larger block. Views of it keep the old block.
    """
    offset: Any = x.storage_offset()
    count = offset + math.prod(shape)
    storage = storage_of(x)
    kept = storage.nbytes() // x.element_size()
    if count > kept:
        grown = allocate((count,), x.dtype)
        if kept:
            grown[:kept].copy_(torch.as_strided(x, (kept,), (1,), 0))
        storage = storage_of(grown)
    share(x, storage, offset, shape, contiguous_strides(tuple(shape)) if strides is None else strides)


def share(x: torch.Tensor, storage: Any, offset: int, shape: Sequence[int], strides: Sequence[int]) -> None:
    """Make `x` a view of the memory of a storage of the device."""
    shape, strides = tuple(shape), tuple(strides)
    _, last = extent(shape, strides)
    nbytes = (offset + last + 1) * x.element_size()
    if private.size_of_storage(storage) < nbytes:  # size known to PyTorch: storages of `new_tensor` have 0 bytes
        root = storage.root
        storage = private.new_storage(x.device, nbytes)
        attach(storage, root)
    _give_type(storage, x.dtype, offset, shape, strides)
    private.set_geometry(x, storage, offset, shape, strides)


def _give_type(
    storage: Storage, dtype: torch.dtype, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    """Replace the byte layout of a loaded storage by the layout of the first tensor that spans it."""
    root = storage.root
    kind, lengths = dtype_of(dtype.to_real()), (*shape, 2) if dtype in complex_parts.PARTS else shape
    whole = contiguous(kind, lengths)
    if (
        offset == 0
        and strides == contiguous_strides(shape)
        and whole.nbytes == storage.nbytes()
        and root.dtype is not kind
    ):
        storage.root = polyhal_tensor(root.device, root.buffer, Ref(root.ref.handle, whole, 0))
        if (recorder := dispatch.thread.executor.recorder) is not None:
            recorder.track(storage.root)


def view_of(x: Tensor, spec: Spec, offset: int) -> Tensor:
    """Return a view with another layout in the memory of a Polyhal tensor."""
    return polyhal_tensor(x.device, x.buffer, Ref(x.ref.handle, spec, offset))


def upload(x: torch.Tensor) -> Tensor:
    """Copy a CPU tensor to the device."""
    return upload_to(x, current())


def upload_to(x: torch.Tensor, device: Device) -> Tensor:
    """Copy a CPU tensor to a Polyhal device."""
    if x.dtype in complex_parts.PARTS:
        parts = upload_to(torch.view_as_real(x.detach().resolve_conj().contiguous()), device)
        return complex_parts.view(parts, x.dtype, tuple(x.shape), contiguous_strides(tuple(x.shape)), 0)
    out = polyhal_tensor(device, *device.upload(elements(x), dtype_of(x.dtype)))
    if (recorder := dispatch.thread.executor.recorder) is not None:
        recorder.capture_constant(out)
    return out


def elements(x: torch.Tensor) -> np.ndarray:
    """Return the elements of a real CPU tensor in Polyhal's dtype."""
    source = x.detach().resolve_conj().resolve_neg().contiguous()
    bits = source.view(torch.int16) if x.dtype is torch.bfloat16 else source
    return bits.numpy().view(dtype_of(x.dtype).numpy)


def download(x: Tensor) -> torch.Tensor:
    """Copy a Polyhal tensor to the CPU."""
    return from_elements(x.numpy(), TORCH_DTYPES[x.dtype])


def from_elements(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Return a CPU tensor in the memory of an array of elements in Polyhal's dtype."""
    if dtype is torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def check_overlap(target: Tensor, source: Tensor) -> None:
    """Raise RuntimeError, as PyTorch does, for a write to memory that the same op reads in another layout.

    No-op for tensors with gaps, as in PyTorch.
    """
    if target is source or getattr(target, "buffer", None) is not getattr(source, "buffer", target):
        return
    a, b = target.ref, source.ref
    if not (a.size and b.size and is_dense(a.shape, a.strides) and is_dense(b.shape, b.strides)):
        return
    same = (a.offset, a.size) == (b.offset, b.size)
    if (same and a.strides != b.strides) or (
        not same and a.offset < b.offset + b.size and b.offset < a.offset + a.size
    ):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
            "location. Please clone() the tensor before performing the operation."
        )


def write(target: torch.Tensor, value: Any) -> None:
    """Overwrite a tensor of the device with a number or a Polyhal tensor, broadcast and cast."""
    put_off = target.is_conj() or target.is_neg()
    place = _view(target, root_of(target)) if put_off else unwrap(target)
    if target.is_conj():
        value = FUNCTIONS["conj"](value) if hasattr(value, "ref") else value.conjugate()
    if target.is_neg():
        value = -value
    if hasattr(value, "ref"):
        if value.shape != place.shape:
            value = FUNCTIONS["broadcast_to"](value, place.shape)
        if value is not place and not {*complex_parts.buffers(value)}.isdisjoint(complex_parts.buffers(place)):
            value = FUNCTIONS["copy"](value)
    if isinstance(place, ComplexTensor) or dispatch.is_complex(value):
        complex_parts.overwrite(place, value)
    else:
        if not hasattr(value, "ref"):
            require_fit("fill_", value, place.dtype)
        dispatch.thread.executor.overwrite(place, value)
