"""Exchange with other libraries by DLPack, by copies in the host's memory: PyTorch's C++ code has no memory to share."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.dlpack

from polyhal.hal.errors import message
from polyhal.torch.device import NAME

if TYPE_CHECKING:
    from polyhal.torch.call_types import Function

_HOST = (1, 0)
"""DLPack's name of the host's memory."""
_Torch: Any = torch
"""PyTorch as Any, to replace its functions."""


def install() -> None:
    """Let PyTorch's functions for DLPack take tensors of the device."""
    tensor = _Torch.Tensor
    tensor.__dlpack__ = _exported(tensor.__dlpack__)
    tensor.__dlpack_device__ = _placed(tensor.__dlpack_device__)
    _Torch.to_dlpack = _Torch.utils.dlpack.to_dlpack = _on_host(_Torch.utils.dlpack.to_dlpack)


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
