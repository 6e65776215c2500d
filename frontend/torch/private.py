"""What is used of PyTorch beyond its public interface: one function for each name, so that a change there is mended here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._C import _acc, _dispatch_has_kernel_for_dispatch_key
from torch._C._dynamo import guards
from torch._decomp import core_aten_decompositions, global_decomposition_table
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_ANY_DEVICE = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)

new_tensor: Callable[[tuple[int, ...], torch.dtype], torch.Tensor] = _acc.create_empty_tensor
"""A tensor of the device with a storage of 0 bytes of its own: `new_tensor(shape, dtype)`."""

_Reinterpret = Callable[[torch.Tensor, Sequence[int], Sequence[int], int], torch.Tensor]
reinterpret: _Reinterpret = guards._reinterpret_tensor  # type: ignore[attr-defined]
"""A view of other shape, strides and offset, without checks: `reinterpret(x, shape, strides, offset_increment)`."""


def register_device(name: str, module: Any) -> None:
    """Give PyTorch's free device type a name, a module `torch.NAME`, and hooks and guards written in Python."""
    _setup_privateuseone_for_python_backend(name, backend_module=module)


def has_kernel(name: str, key: str) -> bool:
    """Whether the op `name`, as in `aten::add.Tensor`, has a kernel for the dispatch key `key`."""
    return bool(_dispatch_has_kernel_for_dispatch_key(name, key))


def new_storage(device: torch.device, nbytes: int) -> Any:
    """A storage of the device that says it has `nbytes` and holds no memory."""
    return torch._C._construct_storage_from_data_pointer(0, device, nbytes)


def set_geometry(x: torch.Tensor, storage: Any, offset: int, shape: Sequence[int], strides: Sequence[int]) -> None:
    """Give a tensor of any device another storage, shape and strides: the kernel of the CPU, which touches no element."""
    torch.ops.aten.set_.source_Storage_storage_offset.redispatch(_CPU, x, storage, offset, list(shape), list(strides))


def to_copy(x: torch.Tensor, **options: Any) -> torch.Tensor:
    """PyTorch's kernel of `_to_copy` for all devices, which calls `empty_strided` and `copy_`."""
    return torch.ops.aten._to_copy.default.redispatch(_ANY_DEVICE, x, **options)  # type: ignore[no-any-return]


def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's own rules that express ops by others, by overload."""
    return {**core_aten_decompositions(), **global_decomposition_table["post_autograd"]}


def overloads(name: str) -> Iterable[Any]:
    """All overloads of the ATen op `name`."""
    packet = getattr(torch.ops.aten, name)
    return [getattr(packet, overload) for overload in packet.overloads()]
