"""Signature of a call to a captured function: properties of arguments that must be equal for calls of one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.complex_tensor import ComplexTensor
from polyhal.hal.errors import CaptureError, message
from polyhal.steps.tree import map_tree
from polyhal.tensor import Tensor


class CallArguments:
    """The arguments of a call, flattened. Calls with equal `key` can share a graph; tensors and floats may differ."""

    __slots__ = ("_buffers", "floats", "key", "tensors")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises CaptureError for arguments that cannot be compared."""
        self.tensors: list[Tensor] = []
        self.floats: list[float] = []
        self.key: list[Any] = []
        self._buffers: dict[int, int] = {}
        self._flatten(args)
        if kwargs:
            self._flatten(kwargs)

    def _flatten(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, ComplexTensor):
            self.key.append((complex, 2))
            self._flatten(value.real)
            self._flatten(value.imag)
        elif isinstance(value, Tensor):
            # Shared memory is part of the signature: a write in place to one tensor changes the others.
            first = self._buffers.setdefault(id(value.buffer), len(self.tensors))
            alias = (first, value.ref.offset) if first != len(self.tensors) else None
            self.tensors.append(value)
            self.key.append(_TensorSignature(value, alias))
        elif kind is float:
            self.floats.append(value)
            self.key.append(float)
        elif kind in (list, tuple) or hasattr(value, "_fields"):
            self.key.append((kind, len(value)))
            for x in value:
                self._flatten(x)
        elif kind is dict:
            self.key.append((kind, tuple(value)))
            for x in value.values():
                self._flatten(x)
        else:
            self.key.append((kind, _hashable(value)))


class _TensorSignature(tuple[Any, ...]):
    """Properties of a tensor argument that a graph depends on."""

    __slots__ = ()

    def __new__(cls, x: Tensor, alias: tuple[int, int] | None) -> _TensorSignature:
        """`alias` is the number of an earlier tensor in the same memory, and the offset there."""
        return super().__new__(cls, (x.ref.spec, x.device, x.requires_grad, x.is_leaf, alias))

    def __str__(self) -> str:
        spec, device, requires_grad, _, alias = self
        gradient = ", with gradient" if requires_grad else ""
        return f"{spec} on {device}{gradient}" + (f", in the memory of tensor {alias[0]}" if alias else "")


def _hashable(value: Any) -> Any:
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
    return value


def map_arguments(value: Any, tensor: Callable[[Tensor], Any], number: Callable[[float], Any]) -> Any:
    """Return `value` with tensors and floats replaced, in the order in which `CallArguments` flattens them."""

    def leaf(x: Any) -> Any:
        if isinstance(x, Tensor):
            return tensor(x)
        return number(x) if type(x) is float else x

    return map_tree(value, leaf)


def describe_key(key: tuple[Any, ...]) -> str:
    """Describe a signature for messages."""
    words = []
    for part in key:
        if isinstance(part, _TensorSignature):
            words.append(str(part))
        elif part is float:
            words.append("float")
        elif isinstance(part, tuple) and len(part) == 2 and part[0] not in (list, tuple, dict):
            words.append(repr(part[1]))
    return "(" + "; ".join(words) + ")"
