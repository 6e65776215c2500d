"""Context of a backend's own exceptions: the op, the device, and the package to update or to report to."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from polyhal.hal.errors import PolyhalError

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_BEGINNING = "raised by the backend "


def note_backend_failure(error: BaseException, op: str, device: Device) -> None:
    """Add a note with op, device and package to an exception that a backend raised in a call.

    No-op for Polyhal's own errors, whose messages name the device, and for an exception that has such a note.
    """
    if isinstance(error, PolyhalError) or not isinstance(error, Exception):
        return
    with contextlib.suppress(Exception):  # a stranger's exception may refuse notes
        if not any(str(note).startswith(_BEGINNING) for note in getattr(error, "__notes__", ())):
            error.add_note(f"{_BEGINNING}{_backend(device)} in [{op}] on {device.name} ({device.info.name})")


def _backend(device: Device) -> str:
    name, origin = device.info.backend, device.origin
    return f"{name} of the package {origin}" if origin is not None and origin.distribution else name
