"""Exchange with other libraries by DLPack, and with files of TorchScript: by copies in the host's memory.

PyTorch's C++ code has no memory of the device to share or to write.
"""

from __future__ import annotations

import copy as copies
import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.dlpack

from polyhal.hal.errors import message
from polyhal.torch import private
from polyhal.torch.device import NAME, check_ordinal

if TYPE_CHECKING:
    from polyhal.torch.call_types import DeviceName, Function

_HOST = (1, 0)
"""DLPack's name of the host's memory."""
_Torch: Any = torch
"""PyTorch as Any, to replace its functions."""


def install() -> None:
    """Let PyTorch's functions for DLPack and TorchScript take tensors of the device."""
    tensor = _Torch.Tensor
    tensor.__dlpack__ = _exported(tensor.__dlpack__)
    tensor.__dlpack_device__ = _placed(tensor.__dlpack_device__)
    _Torch.to_dlpack = _Torch.utils.dlpack.to_dlpack = _on_host(_Torch.utils.dlpack.to_dlpack)
    _Torch.jit.load = _loaded(_Torch.jit.load)
    for kind, name in private.writers_of_scripts():
        setattr(kind, name, _saved(getattr(kind, name)))


def _is_ours(x: torch.Tensor) -> bool:
    return x.device.type == NAME


def _exported(original: Function) -> Function:
    @functools.wraps(original)
    def export(
        self: torch.Tensor, *, dl_device: tuple[int, int] | None = None, copy: bool | None = None, **options: object
    ) -> object:
        if not _is_ours(self):
            return original(self, dl_device=dl_device, copy=copy, **options)
        if copy is False or dl_device not in (None, _HOST):
            problem = f"memory of {NAME} is exported as a copy on the host, and {(dl_device, copy)} is requested"
            fix = "leave copy=False and the device out; polyhal.torch.to_polyhal(x) shares the memory with Polyhal"
            raise BufferError(message("dlpack", problem, fix=fix))
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        options.pop("stream", None)
        return original(self.resolve_conj().cpu(), **options)

    return export


def _placed(original: Function) -> Function:
    @functools.wraps(original)
    def place(self: torch.Tensor) -> Any:
        return _HOST if _is_ours(self) else original(self)

    return place


def _on_host(original: Function) -> Function:
    def to_dlpack(tensor: torch.Tensor) -> Any:
        """Return a capsule for DLPack; of a copy on the host for a tensor of the device."""
        return original(tensor.cpu() if _is_ours(tensor) else tensor)

    return to_dlpack


def _loaded(original: Function) -> Function:
    @functools.wraps(original)
    def load(f: object, map_location: DeviceName | None = None, *args: object, **options: object) -> Any:
        if map_location is None or torch.device(map_location).type != NAME:
            return original(f, map_location, *args, **options)
        check_ordinal(torch.device(map_location))
        return original(f, "cpu", *args, **options).to(map_location)

    return load


def _saved(original: Function) -> Function:
    """Return a method that writes copies on the CPU of parameters and buffers of the device."""

    @functools.wraps(original)
    def save(self: torch.jit.ScriptModule, *args: object, **options: object) -> Any:
        if not any(map(_is_ours, (*self.parameters(), *self.buffers()))):
            return original(self, *args, **options)
        with torch.no_grad():
            host = copies.deepcopy(self).cpu()
        for copied, x in zip(host.parameters(), self.parameters(), strict=True):
            copied.requires_grad_(x.requires_grad)
        return original(host, *args, **options)

    return save
