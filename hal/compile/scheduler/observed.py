"""Calls of captured steps with launch observers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyhal.hal.compile.scheduler.calls import NodeCall
from polyhal.hal.core.dispatch.observer import ObservedCall, run_observed
from polyhal.hal.core.execution.runtime_scalars import RuntimeScalar, current_values
from polyhal.hal.layout import Ref


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
