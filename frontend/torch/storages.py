"""PyTorch storages that own Polyhal buffers, with the methods that `torch.save`, `copy.deepcopy` and `pickle` call."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import torch

from polyhal.hal.dtypes import uint8
from polyhal.hal.layout import Ref, contiguous, extent
from polyhal.tensor import Tensor
from polyhal.tensor import wrap as polyhal_tensor
from polyhal.torch import private
from polyhal.torch.device import NAME, check_ordinal, current

_Host: Any = torch.UntypedStorage
"""`torch.UntypedStorage` as Any: its methods are not annotated."""


_ADDRESSES: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""Addresses of live buffers, as numbers."""
_RANGES = itertools.count(1 << 40, 1 << 40)
"""First addresses of ranges without common elements: each is larger than the memory of any device."""


class Storage(torch.UntypedStorage):
    """Storage of a tensor on the device. `root` is its whole memory, as a Polyhal tensor."""

    root: Tensor

    @cached_property
    def room(self) -> int:
        """`nbytes`, cached for checks of views until `resize_`."""
        return self.nbytes()

    def nbytes(self) -> int:
        """Return the size of the memory in bytes, up to the last element of `root`."""
        if not hasattr(self, "root"):
            return 0
        spec = self.root.ref.spec
        _, last = extent(spec.shape, spec.strides)
        return (self.root.ref.offset + last + 1) * spec.dtype.itemsize if self.root.size else 0

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        """Return a number that stands for the address, equal for storages of one buffer; no kernel uses it."""
        buffer = self.root.buffer
        found = _ADDRESSES.get(buffer)
        if found is None:
            found = _ADDRESSES[buffer] = next(_RANGES)
        return found

    def as_bytes(self) -> Tensor:
        """Return the whole memory as a Polyhal tensor of bytes."""
        root = self.root
        return polyhal_tensor(root.device, root.buffer, Ref(root.ref.handle, contiguous(uint8, (self.nbytes(),)), 0))

    def cpu(self) -> torch.UntypedStorage:
        """Return a copy in the CPU's memory."""
        return torch.from_numpy(self.as_bytes().numpy()).untyped_storage()

    def to(self, *, device: Any, non_blocking: bool = False) -> torch.UntypedStorage:
        """Return this storage if it is on `device`, else a copy."""
        where = torch.device(device)
        return self if where.type == NAME else self.cpu().to(device=where)

    def clone(self) -> Storage:
        """Return a copy on the device."""
        copied: Any = self.as_bytes().clone()
        return of_bytes(copied)

    def copy_(self, source: Any, non_blocking: bool | None = None) -> Any:
        """Copy the bytes of a storage of any device to this one."""
        theirs: Any = source.as_bytes() if isinstance(source, Storage) else uploaded_bytes(source)
        place: Any = self.as_bytes()
        place[:] = theirs
        return self

    def resize_(self, nbytes: int) -> Storage:
        """Change the size of the memory, and keep the bytes that fit. FSDP frees parameters so, and allocates them again."""
        before = self.nbytes()
        if nbytes != before:
            place = current()
            buffer, ref = place.reserve(contiguous(uint8, (nbytes,)))
            root: Any = polyhal_tensor(place, buffer, ref)
            kept = min(before, nbytes)
            if kept:
                root[:kept] = self.as_bytes()[:kept]
            self.root = root
            self.__dict__.pop("room", None)
        return self

    def tolist(self) -> list[int]:
        """Return the bytes as numbers."""
        host: Any = self.cpu()
        return host.tolist()  # type: ignore[no-any-return]

    def __getitem__(self, index: Any) -> Any:
        """Read from a copy in the CPU's memory."""
        return self.cpu()[index]

    def is_shared(self) -> bool:
        """Return False: other processes cannot map the memory."""
        return False

    def share_memory_(self) -> NoReturn:
        """Raise RuntimeError: a process that received the tensor would have a copy, and its writes would be lost."""
        raise RuntimeError(
            f"memory of {NAME} cannot be shared between processes: share x.cpu(), or send the tensor, which copies it"
        )

    _share_fd_cpu_ = _share_filename_cpu_ = share_memory_

    def _write_file(self, *args: Any) -> Any:
        host: Any = self.cpu()
        return host._write_file(*args)

    def _set_from_file(self, *args: Any) -> Any:
        host = _Host(self.nbytes())
        host._set_from_file(*args)
        return self.copy_(host)


def attach(storage: Any, root: Tensor) -> None:
    """Attach the memory of `root` to a PyTorch storage."""
    storage.__class__ = Storage
    storage.root = root


def of_bytes(root: Tensor) -> Storage:
    """Return a storage of the device around a Polyhal tensor of bytes."""
    storage = private.new_storage(torch.device(NAME, 0), root.nbytes)
    attach(storage, root)
    return storage  # type: ignore[no-any-return]


def uploaded_bytes(storage: torch.UntypedStorage) -> Tensor:
    """Copy the bytes of a CPU storage to a Polyhal tensor."""
    host = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
    device = current()
    return polyhal_tensor(device, *device.upload(host.numpy(), uint8))


def to_device(storage: Any, place: str = NAME) -> Storage:
    """Copy a CPU storage to the device, for `torch.load`.

    Raises RuntimeError for another device.
    """
    check_ordinal(torch.device(place))
    untyped = storage if isinstance(storage, torch.UntypedStorage) else storage.untyped()
    return of_bytes(uploaded_bytes(untyped))


def install() -> None:
    """Let PyTorch create storages of the device, and accept them where it checks for exactly its own class."""
    private.replace_storage_constructor(_new_storage)
    private.accept_storages(Storage)
    private.add_addresses_of_storages(Storage)


def _new_storage(device: torch.device | None, *args: Any) -> Storage | None:
    """Create `torch.UntypedStorage(3, device="polyhal")`; None for other devices. Raises TypeError unless it is a size."""
    if device is None or torch.device(device).type != NAME:
        return None
    if any(not isinstance(n, int) for n in args) or len(args) > 1:
        raise TypeError(f"a storage on {NAME} is made with a number of bytes, and filled by copy_")
    check_ordinal(torch.device(device))
    place = current()
    buffer, ref = place.reserve(contiguous(uint8, (args[0] if args else 0,)))
    return of_bytes(polyhal_tensor(place, buffer, ref))
