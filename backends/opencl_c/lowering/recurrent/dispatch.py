"""Recurrent ops, and the functions that lower them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polyhal.backends.opencl_c.lowering.recurrent import cpu_steps, resident_steps, resident_tiles, steps
from polyhal.backends.opencl_c.lowering.recurrent.problem import Inputs, LayerSteps, refusal
from polyhal.backends.opencl_c.runtime import Runtime
from polyhal.hal.layout import Spec
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

_FORWARD = {
    "LSTM": ("x", "weight", "hidden", "state", "projection", "lengths", "outs", "states", "kept_gates"),
    "GRU": ("x", "weight", "hidden", "bias", "lengths", "outs"),
}
_GRADIENT = {
    "LSTM": ("grad", "grad_states", "gates", "weight", "first", "states", "d_gates", "d_hidden", "d_state"),
    "GRU": ("grad", "gates", "fed_back", "weight", "first", "states", "d_gates", "d_fed_back", "d_hidden"),
}
"""Kernel names of each op's tensors, in the order of its inputs and outputs."""


def _lowering(cell: str, *, gradient: bool) -> Callable[..., Launch | Declined]:
    names = (_GRADIENT if gradient else _FORWARD)[cell]

    def lower(runtime: Runtime, inputs: Inputs, outputs: tuple[Spec, ...], params: Params) -> Launch | Declined:
        specs = dict(zip(names, (*inputs, *outputs), strict=True))
        for name in ("projection", "lengths"):
            if specs.get(name) is not None:
                return Declined(f"the kernels do not support {name}")
        present = {name: (i, spec) for i, (name, spec) in enumerate(specs.items()) if isinstance(spec, Spec)}
        given = [s for n, s in specs.items() if s is not None and n != "weight"]
        reason = refusal(tuple(given), specs["weight"])
        if reason:
            return Declined(reason)
        length, batch, size = present["outs" if "outs" in present else "grad"][1].shape
        problem = LayerSteps(cell, present, length, batch, size, params["reverse"], params.get("keep_gates", False))
        if runtime.features.cpu:
            return cpu_steps.gradient(runtime, problem) if gradient else cpu_steps.forward(runtime, problem)
        division = resident_steps.shares(runtime, problem, gradient=gradient)
        if division is not None:
            resident = resident_steps.gradient if gradient else resident_steps.forward
            return resident(runtime, problem, division)
        launch = steps.gradient(runtime, problem) if gradient else steps.forward(runtime, problem)
        tiles = resident_tiles.tiles(runtime, problem, gradient=gradient) if isinstance(launch, Declined) else None
        if tiles is None:
            return launch
        return (resident_tiles.gradient if gradient else resident_tiles.forward)(runtime, problem, tiles)

    return lower


LOWERINGS: dict[str, Callable[..., Launch | Declined]] = {
    "lstm": _lowering("LSTM", gradient=False),
    "gru": _lowering("GRU", gradient=False),
    "lstm_steps_grad": _lowering("LSTM", gradient=True),
    "gru_steps_grad": _lowering("GRU", gradient=True),
}
