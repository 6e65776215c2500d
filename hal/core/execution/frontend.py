"""The interface between executors and the tensor library above hal: how results become tensors and reach its tape.

The frontend sets these five functions when it is imported (frontend/binding.py). Everything else in hal works on `Array`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyhal.hal.core.execution.executor import Array
    from polyhal.hal.core.memory.buffer import Buffer
    from polyhal.hal.device import Device
    from polyhal.hal.layout import Ref
    from polyhal.hal.ops.opdef import OpDef


class Frontend:
    """Functions that the tensor library provides. They are on the hot path, so they are called without checks."""

    __slots__ = ("convert", "join", "note_view", "record", "wrap")

    wrap: Callable[[Device, Buffer, Ref], Any]
    """Makes the result of an op from its memory."""
    convert: Callable[[Any, Device], Array]
    """Makes an operand from nested lists or a NumPy array. Raises TypeError."""
    join: Callable[[Any, Any], Any]
    """Makes a complex array of its real and its imaginary part, and one part may be a number."""
    record: Callable[[OpDef, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], None]
    """Puts an op on the tape: op, inputs, parameters, results."""
    note_view: Callable[[Any, Any], None]
    """Notes a view off the tape of an array, so that a later write in place on the tape reaches it: array, view."""


frontend = Frontend()
