"""Calls of captured steps with launch observers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.capture.runtime_scalars import RuntimeScalar, current_values
from polyhal.hal.checks.observer import ObservedCall, run_observed
from polyhal.hal.checks.reference import ReferenceCheck
from polyhal.hal.errors import WrongResultError, message
from polyhal.hal.layout import Ref
from polyhal.hal.scheduler.calls import NodeCall
from polyhal.hal.settings.state import settings

if TYPE_CHECKING:
    from polyhal.hal.device import Device


def observed_call(
    call: NodeCall, inputs: list[Any], outputs: list[Ref], workspace: Sequence[Any]
) -> Callable[[], None]:
    """Bind a call like `NodeCall.bound`, and report each run of it to the observers."""
    scalars = any(isinstance(x, RuntimeScalar) for x in inputs)
    run = call.bound(inputs, list(outputs), list(workspace), runtime_scalars=scalars)
    node = call.node
    params = node.bound

    def observed() -> None:
        now = current_values(inputs) if scalars else inputs
        run_observed(
            ObservedCall(node.device, node.op, params, now, outputs, call.resolution, lambda: node.place.location), run
        )

    return observed


def observed_copy(device: Device, source: Ref, target: Ref) -> Callable[[], None]:
    """Bind a copy at the end of a step. It is not an op, but the check `reference` compares it, too."""

    def observed() -> None:
        if not any(isinstance(o, ReferenceCheck) for o in settings.observers):
            device.backend.copy(source, target)
            return
        expected = device.download(source)
        device.backend.copy(source, target)
        if device.download(target).tobytes() != expected.tobytes():
            problem = f"the copy of a result, {target.spec}, differs from its source"
            raise WrongResultError(message("copy", problem, fix="run `polyhal verify`", device=device))

    return observed
