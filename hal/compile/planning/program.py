"""Programs that a backend compiles from graphs: which ops it claims, and the launch of a program."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.ir.graph import Value
from polyhal.hal.compile.planning.resolution import Resolution, ResolutionStep
from polyhal.hal.core.settings.state import settings
from polyhal.hal.errors import BackendError, OutOfMemoryError, message
from polyhal.hal.protocol import Declined, Launch

if TYPE_CHECKING:
    from polyhal.hal.compile.ir.graph import Graph, Node
    from polyhal.hal.device import Device


class ProgramDeclinedError(Exception):
    """A backend declined the graph of a program."""

    def __init__(self, device: Device, reason: str) -> None:
        super().__init__(reason)
        self.device = device
        self.reason = reason


def offered_params(device: Device, node: Node) -> Mapping[str, Any]:
    """Return the parameters of a node as a backend receives them, with the settings in force that both name."""
    return {**node.bound, **settings.among(node.op.settings, device.backend.capabilities.settings)}


def declined_op(device: Device, graph: Graph, node: Node) -> str:
    """Return why the backend does not take an op into programs; empty if it claims the op."""
    backend: Any = device.backend
    inputs = tuple(graph.spec_of(x) for x in node.inputs)
    answer = backend.claim_op(node.op.name, inputs, graph.output_specs(node), offered_params(device, node))
    if answer is None:
        return ""
    if not isinstance(answer, Declined):
        problem = f"claim_op returned {answer!r}"
        raise BackendError(message(node.op.name, problem, expected="None, or Declined with a reason", device=device))
    return answer.reason


def compile_program(
    graph: Graph, node: Node, aliases: Sequence[int], captured: Collection[int]
) -> tuple[Launch, Resolution]:
    """Return the launch of a program and its record; `aliases` has the operand that each output overwrites, or -1.

    `captured` are the values of the graph that stay where they are and that the step does not change. Raises
    ProgramDeclinedError.
    """
    (part,), device = node.params, node.device
    backend: Any = device.backend
    positions = frozenset(i for i, x in enumerate(node.inputs) if isinstance(x, Value) and x.index in captured)
    with settings.restored(node.place.settings):
        try:
            launch = backend.compile_graph(part.graph(aliases, positions))
        except OutOfMemoryError as error:
            raise ProgramDeclinedError(device, str(error)) from error
    if isinstance(launch, Declined):
        raise ProgramDeclinedError(device, launch.reason)
    if not device.planner.is_launch(launch):
        problem = f"compile_graph returned {launch!r}"
        raise BackendError(message("program", problem, expected="a Launch, or Declined with a reason", device=device))
    replaced = sum(a >= 0 for a in aliases)
    how = f"program {launch.name} of {str(part)[1:-1]}" + (f"; {replaced} results replace inputs" if replaced else "")
    resolution = Resolution(node.op.name, tuple(graph.spec_of(x) for x in node.inputs), how, ResolutionStep.PROGRAM)
    resolution.recordable = True
    return launch, resolution
