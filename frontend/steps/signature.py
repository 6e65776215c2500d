"""Signature of a call to a captured function: properties of arguments that must be equal for calls of one graph."""

from __future__ import annotations

from typing import Any

from polyhal.hal.compile.capture.flat_call import TENSOR, FlatCall
from polyhal.hal.errors import CaptureError, message
from polyhal.steps.tree import TREE
from polyhal.tensor import Tensor


class CallArguments(FlatCall):
    """Flattened arguments of a call. A complex tensor counts as its two parts."""

    __slots__ = ()

    tree = TREE
    tensor_types = Tensor

    def add_tensor(self, value: Any) -> bool:
        if not isinstance(value, Tensor):
            return False
        first = self.memories.setdefault(id(value.buffer), len(self.tensors))
        alias = (first, value.ref.offset) if first != len(self.tensors) else None
        self.tensors.append(value)
        self.parts.append((TENSOR, value.ref.spec, value.device, value.requires_grad, value.is_leaf, alias))
        return True

    def add_value(self, value: Any) -> None:
        try:
            hash(value)
        except TypeError as error:
            raise CaptureError(
                message(
                    "jit",
                    f"an argument is a {type(value).__name__}",
                    expected="tensors, numbers, strings, and lists, tuples and dictionaries of these",
                    fix="convert it with polyhal.tensor, or let the function refer to it without passing it",
                )
            ) from error
        self.parts.append((type(value), value))

    @staticmethod
    def tensor_word(properties: Any) -> str:
        spec, device, requires_grad, _, alias = properties
        gradient = ", with gradient" if requires_grad else ""
        return f"{spec} on {device}{gradient}" + (f", in the memory of tensor {alias[0]}" if alias else "")
