"""Binds the executors of hal to this frontend: results become tensors, and ops that need gradients go on the tape."""

from __future__ import annotations

from typing import Any

from polyhal.autograd.rebase import note_view
from polyhal.autograd.tape import record
from polyhal.hal import dispatch
from polyhal.hal.device import Device
from polyhal.tensor import Tensor, wrap


def _convert(data: Any, device: Device) -> Tensor:
    return Tensor(data, device=device)


dispatch.frontend.wrap = wrap
dispatch.frontend.convert = _convert
dispatch.frontend.record = record
dispatch.frontend.note_view = note_view
