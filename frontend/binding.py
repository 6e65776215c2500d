"""Binds the executors of hal to this frontend: results become tensors, and ops that need gradients go on the tape."""

from __future__ import annotations

from polyhal.hal.core import dispatch
from polyhal.hal.core.settings import env
from polyhal.hal.device import Device
from polyhal.hal.ops.tensor_like import Array
from polyhal.tape.rebase import note_view
from polyhal.tape.tape import record
from polyhal.tensor import Tensor, make_tensor, wrap
from polyhal.tensor.complex_tensor import join


def _convert(data: Array | float, device: Device) -> Tensor:
    return make_tensor(data, None, device)


dispatch.frontend.wrap = wrap
dispatch.frontend.convert = _convert
dispatch.frontend.join = join
dispatch.frontend.record = record
dispatch.frontend.note_view = note_view

if env.checks() or env.watchdog():
    from polyhal.hal.system.checks.modes import start

    start()
