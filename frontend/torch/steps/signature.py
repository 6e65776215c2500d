"""Signature of a call to a recorded step: values that may differ between replays of one recording, and values that may not."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from polyhal.hal.errors import CaptureError, message
from polyhal.hal.layout import ALIGNMENT
from polyhal.torch import private
from polyhal.torch.device import NAME
from polyhal.torch.steps.tree import children, map_leaves

_BY_VALUE = (
    int,
    bool,
    str,
    bytes,
    complex,
    type(None),
    torch.dtype,
    torch.device,
    torch.memory_format,
    np.generic,
    enum.Enum,
)


class SameObject:
    """An object in a signature, compared by identity."""

    __slots__ = ("target",)

    def __init__(self, target: Any) -> None:
        self.target = target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameObject) and self.target is other.target

    def __hash__(self) -> int:
        return id(self.target)


class Call:
    """Flattened arguments of a call. Calls with equal `key` may share a recording."""

    __slots__ = ("_storages", "args", "host", "key", "kwargs", "on_device", "roots")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Flatten the arguments. Raises CaptureError for arguments that are neither inputs nor comparable."""
        self.args = args
        self.kwargs = kwargs
        self.on_device: list[torch.Tensor] = []
        self.host: list[Any] = []
        """CPU tensors and floats, in order."""
        self.roots: list[Any] = []
        """Other objects, such as models and optimizers."""
        self.key: list[Any] = []
        self._storages: dict[int, int] = {}
        self._flatten(args)
        if kwargs:
            self._flatten(kwargs)

    def mapped(self, tensor: Callable[[torch.Tensor], Any], number: Callable[[float], Any]) -> tuple[Any, Any]:
        """Return the arguments with tensors and floats replaced, in order."""

        def leaf(x: Any) -> Any:
            if isinstance(x, torch.Tensor):
                return tensor(x)
            return number(x) if type(x) is float else x

        return tuple(map_leaves(x, leaf) for x in self.args), {k: map_leaves(x, leaf) for k, x in self.kwargs.items()}

    def _flatten(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._add_tensor(value)
        elif type(value) is float:
            self.host.append(value)
            self.key.append(float)
        elif isinstance(value, _BY_VALUE):
            self.key.append((type(value), value))
        else:
            inner = children(value)
            if inner is None:
                self._add_object(value)
                return
            self.key.append((type(value), tuple(k for k, _ in inner)))
            for _, child in inner:
                self._flatten(child)

    def _add_tensor(self, x: torch.Tensor) -> None:
        kind = x.device.type
        if kind == NAME:
            if x.requires_grad and torch.is_grad_enabled():
                raise _needs_gradients(x)
            storage = private.storage_key(x)
            alias = self._storages.setdefault(storage, len(self.on_device))
            offset = x.storage_offset()
            here = offset if alias != len(self.on_device) else offset % ALIGNMENT == 0
            self.key.append((x.shape, x.stride(), x.dtype, x.is_conj(), x.is_neg(), alias, here))
            self.on_device.append(x)
        elif kind == "cpu":
            self.key.append((kind, x.shape, x.stride(), x.dtype))
            self.host.append(x)
        else:
            raise CaptureError(
                message("jit", f"an argument is on {x.device}", expected=f"tensors on {NAME} or the CPU")
            )

    def _add_object(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            raise CaptureError(
                message("jit", "an argument is a numpy.ndarray", expected="tensors", fix="pass torch.from_numpy(array)")
            )
        self.key.append(SameObject(value))
        self.roots.append(value)


def _needs_gradients(x: torch.Tensor) -> CaptureError:
    return CaptureError(
        message(
            "jit",
            f"an argument of shape {tuple(x.shape)} needs gradients",
            expected="arguments that are data; the step finds parameters through its references",
            fix="pass x.detach(), or let the step refer to the tensor without passing it",
        )
    )
