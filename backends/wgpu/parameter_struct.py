"""The struct `Parameters` of a launch: its layout, and its bytes for given arguments."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from polyhal.backends.common.launching.kernel_arguments import Number
from polyhal.backends.common.launching.launch import ScalarType
from polyhal.backends.wgpu.arguments import BoundArguments, Offset
from polyhal.hal.core.dispatch.number_range import in_64_bits

_CODES = {"int": "i", "uint": "I", "long": "q", "ulong": "Q", "float": "f"}


def _wrap(bits: int, signed: bool) -> Callable[[Any], int]:
    """Return a converter that wraps Python integers to a fixed width."""
    mask, sign = (1 << bits) - 1, 1 << (bits - 1)

    def convert(value: Any) -> int:
        n = (in_64_bits(int(value)) if bits == 64 else int(value)) & mask
        return n - (1 << bits) if signed and n & sign else n

    return convert


def _float(value: Any) -> float:
    try:
        struct.pack("<f", value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return float(value)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "int": _wrap(32, True),
    "uint": _wrap(32, False),
    "long": _wrap(64, True),
    "ulong": _wrap(64, False),
    "float": _float,
}


class NumberMember(NamedTuple):
    """A member that holds an argument which is a number."""

    place: int
    argument: int
    """Index of the number among the arguments."""
    type: ScalarType
    offset: int
    """Bytes from the start of the struct."""


class ParameterStruct:
    """Members of one launch: offsets of tensors, numbers among the arguments, and constants."""

    __slots__ = ("_struct", "_template", "numbers", "packed", "tensors")

    def __init__(self, arguments: BoundArguments) -> None:
        template: list[int | float] = []
        codes = "<"
        tensors: list[tuple[int, int, int]] = []
        numbers: list[NumberMember] = []
        for place, member in enumerate(arguments.members):
            if isinstance(member, Offset):
                tensors.append((place, arguments.buffers[member.binding].index, member.binding))
                template.append(0)
                codes += "I"
                continue
            if isinstance(member, Number):
                numbers.append(NumberMember(place, member.index, member.type, struct.calcsize(codes)))
                template.append(0)
            else:
                template.append(_CONVERTERS[member.type](member.value))
            codes += _CODES[member.type]
        self._template = template
        self._struct = struct.Struct(codes)
        self.tensors = tuple(tensors)
        """Place of the member, index of the argument, and binding of each tensor."""
        self.numbers = tuple(numbers)
        self.packed = b"" if numbers or not template else self._struct.pack(*template)
        """The bytes where all tensors start at 0; empty if they depend on numbers."""

    def pack(self, args: Sequence[Any], offsets: Sequence[int], held: Mapping[int, Any] | None = None) -> bytes:
        """Return the bytes for the offsets of the tensors in elements. `held` replaces arguments by index."""
        values = self._template.copy()
        for (place, _, _), offset in zip(self.tensors, offsets, strict=True):
            values[place] = offset
        for place, index, kind, _ in self.numbers:
            values[place] = _CONVERTERS[kind](args[index] if held is None else held.get(index, args[index]))
        return self._struct.pack(*values)
