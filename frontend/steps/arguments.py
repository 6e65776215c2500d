"""The arguments of a call to a captured function: tensors and floats, which may change, and the rest, which may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyhal.hal.errors import CaptureError, message
from polyhal.steps.nested import mapped
from polyhal.tensor import Tensor


class Arguments:
    """A call's arguments taken apart. `key` tells calls that one graph serves from others."""

    __slots__ = ("_buffers", "floats", "key", "tensors")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises CaptureError for what cannot be told apart from call to call."""
        self.tensors: list[Tensor] = []
        self.floats: list[float] = []
        self.key: list[Any] = []
        self._buffers: dict[int, int] = {}
        self._take(args)
        if kwargs:
            self._take(kwargs)

    def _take(self, value: Any) -> None:
        kind = type(value)
        if isinstance(value, Tensor):
            # Which tensors share memory belongs to the signature: what changes one of them in place changes the others.
            same = self._buffers.setdefault(id(value.buffer), len(self.tensors))
            place = (same, value.ref.offset) if same != len(self.tensors) else None
            self.tensors.append(value)
            self.key.append(_Passed(value, place))
        elif kind is float:
            self.floats.append(value)
            self.key.append(float)
        elif kind in (list, tuple) or hasattr(value, "_fields"):
            self.key.append((kind, len(value)))
            for x in value:
                self._take(x)
        elif kind is dict:
            self.key.append((kind, tuple(value)))
            for x in value.values():
                self._take(x)
        else:
            try:
                hash(value)
            except TypeError as error:
                raise CaptureError(
                    message(
                        "jit",
                        f"an argument is a {kind.__name__}",
                        expected="tensors, numbers, strings, and lists, tuples and dictionaries of these",
                        fix="convert it with polyhal.tensor, or let the function refer to it without passing it",
                    )
                ) from error
            self.key.append((kind, value))


class _Passed(tuple[Any, ...]):
    """What a graph is made for, of a tensor that is passed."""

    __slots__ = ()

    def __new__(cls, x: Tensor, place: tuple[int, int] | None) -> _Passed:
        """`place` is the number of an earlier tensor in the same memory, and the offset there."""
        return super().__new__(cls, (x.ref.spec, x.device, x.requires_grad, x.is_leaf, place))

    def __str__(self) -> str:
        spec, device, requires_grad, _, place = self
        notes = [" on ", str(device), *(", with gradient" if requires_grad else "",)]
        return f"{spec}{''.join(notes)}" + (f", in the memory of tensor {place[0]}" if place else "")


def replaced(value: Any, tensor: Callable[[Tensor], Any], number: Callable[[float], Any]) -> Any:
    """`value` with every tensor and every float in it replaced, in the order in which `Arguments` finds them."""

    def leaf(x: Any) -> Any:
        if isinstance(x, Tensor):
            return tensor(x)
        return number(x) if type(x) is float else x

    return mapped(value, leaf)


def described(key: tuple[Any, ...]) -> str:
    """A signature in words."""
    words = []
    for part in key:
        if isinstance(part, _Passed):
            words.append(str(part))
        elif part is float:
            words.append("float")
        elif isinstance(part, tuple) and len(part) == 2 and part[0] not in (list, tuple, dict):
            words.append(repr(part[1]))
    return "(" + "; ".join(words) + ")"
