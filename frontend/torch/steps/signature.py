"""Signature of a call to a recorded step: values that may differ between replays of one recording, and values that may not."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from polyhal.hal.compile.capture.flat_call import TENSOR, FlatCall
from polyhal.hal.errors import CaptureError
from polyhal.hal.layout import ALIGNMENT
from polyhal.torch import private
from polyhal.torch.device import NAME
from polyhal.torch.steps.refusals import RefusedError
from polyhal.torch.steps.tree import TREE

if TYPE_CHECKING:
    from polyhal.torch.call_types import Arguments, Keywords

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

    def __repr__(self) -> str:
        return f"an object of {type(self.target).__name__}"


class Call(FlatCall):
    """Flattened arguments of a call. CPU tensors count as values on the host, and other objects by identity."""

    __slots__ = ("roots",)

    tree = TREE
    tensor_types = torch.Tensor

    def __init__(self, args: Arguments, kwargs: Keywords, modes: tuple[Any, ...]) -> None:
        self.roots: list[Any] = []
        """Objects among the arguments, such as models and optimizers."""
        super().__init__(args, kwargs, modes)

    def add_tensor(self, value: Any) -> bool:
        if not isinstance(value, torch.Tensor):
            return False
        kind = value.device.type
        if kind == NAME:
            if value.requires_grad and torch.is_grad_enabled():
                raise _needs_gradients(value)
            first = self.memories.setdefault(private.storage_key(value), len(self.tensors))
            offset = value.storage_offset()
            here = offset if first != len(self.tensors) else offset % ALIGNMENT == 0
            strides, is_conjugate, is_negative = value.stride(), value.is_conj(), value.is_neg()
            self.parts.append((TENSOR, value.dtype, value.shape, kind, strides, is_conjugate, is_negative, first, here))
            self.tensors.append(value)
        elif kind == "cpu":
            self.parts.append((TENSOR, value.dtype, value.shape, kind, value.stride()))
            self.host.append(value)
        else:
            raise RefusedError(f"an argument is on {value.device}", expected=f"tensors on {NAME} or the CPU")
        return True

    def add_value(self, value: Any) -> None:
        if isinstance(value, _BY_VALUE):
            self.parts.append((type(value), value))
            return
        if isinstance(value, np.ndarray):
            raise RefusedError("an argument is a numpy.ndarray", expected="tensors", fix="pass torch.from_numpy(array)")
        self.parts.append((type(value), SameObject(value)))
        self.roots.append(value)

    @staticmethod
    def tensor_word(properties: Any) -> str:
        dtype, shape, kind = properties[:3]
        return f"{str(dtype).removeprefix('torch.')}{list(shape)} on {kind}"


def _needs_gradients(x: torch.Tensor) -> CaptureError:
    return RefusedError(
        f"an argument of shape {tuple(x.shape)} needs gradients",
        expected="arguments that are data; the step finds parameters through its references",
        fix="pass x.detach(), or let the step refer to the tensor without passing it",
    )
