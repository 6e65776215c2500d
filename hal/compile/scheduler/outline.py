"""Outline of a planned step for tools that predict or attribute costs: modules of its nodes, live bytes, and gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.compile.capture.result import StepInput
from polyhal.hal.compile.ir.graph import postorder
from polyhal.hal.compile.scheduler.arena import peak_bytes, usage
from polyhal.hal.compile.scheduler.plan import Arena

if TYPE_CHECKING:
    from polyhal.hal.compile.scheduler.executable import Executable
    from polyhal.hal.device import Device


@dataclass(frozen=True, slots=True)
class StepOutline:
    """The nodes of a step on one device, in the order in which they run."""

    modules: tuple[str, ...]
    """Path of the module that called each node; empty outside of modules."""
    backward: int
    """Position of the first node after the forward pass, whose result is the first of the step."""
    live: np.ndarray
    """Bytes of temporaries that are live at each node (n + 1,), int64, without gradients that outlive the step."""
    fragmentation: float
    """Memory of the temporaries, divided by their peak of live bytes; 1 for a step without temporaries."""
    gradients: tuple[tuple[Any, int], ...]
    """Leaves that receive a gradient, with the position of the node that completes it; negative for unchanged gradients."""
    _nodes: dict[int, int] = field(repr=False)

    def position(self, node: object) -> int | None:
        """Return the position of a node, such as a launch of `StepProfile` has; None for any other object."""
        return self._nodes.get(id(node))


def outline(executable: Executable, device: Device) -> StepOutline:
    """Return the outline of a planned step on a device."""
    graph = executable.graph
    modules = tuple(node.origin.module if node.origin is not None else "" for node in graph.nodes)
    arena = executable.plan.arenas.get(device, Arena())
    least = peak_bytes(arena.intervals)
    return StepOutline(
        modules=modules,
        backward=_forward_nodes(executable, modules),
        live=_live_bytes(executable, arena),
        fragmentation=arena.layout.nbytes / least if least else 1.0,
        gradients=tuple(_gradients(executable)),
        _nodes={id(node): k for k, node in enumerate(graph.nodes)},
    )


def _forward_nodes(executable: Executable, modules: tuple[str, ...]) -> int:
    """Return how many nodes belong to the forward pass.

    Its result may be computed late, since no gradient reads a loss. Then the pass ends before the first node of a module that
    follows all nodes of modules that the result needs.
    """
    graph = executable.graph
    result = _producer(executable, executable.captured.results[0])
    if result < 0:  # an argument of the step
        return 0

    def needs(k: int) -> list[int]:
        return [p for value in graph.nodes[k].reads if (p := graph.producer_index(value)) >= 0]

    last = max((k for k in postorder(result, needs, set()) if modules[k]), default=result)
    return next((k for k in range(last + 1, result) if modules[k]), result + 1)


def _producer(executable: Executable, output: int) -> int:
    graph = executable.graph
    return graph.producer_index(graph.root(graph.outputs[output]))


def _live_bytes(executable: Executable, arena: Arena) -> np.ndarray:
    gradients = executable.plan.gradients
    live = np.zeros(len(executable.graph.nodes) + 1, np.int64)
    intervals = [
        interval
        for owner, interval in zip(arena.owners, arena.intervals, strict=True)
        if not (owner.kind == "allocation" and owner.number in gradients)
    ]
    if intervals:
        start = max(0, min(i.first for i in intervals))
        found = usage(intervals)[: len(live) - start]
        live[start : start + len(found)] = found
    return live


def _gradients(executable: Executable) -> list[tuple[Any, int]]:
    captured, graph = executable.captured, executable.graph
    outputs = {id(tensor): output for tensor, output in captured.live_outs}
    of_input = {source.position: i for i, source in enumerate(executable.plan.sources) if isinstance(source, StepInput)}
    found: list[tuple[Any, int]] = []
    for gradient in captured.gradients:
        passed = None if gradient.position is None else of_input.get(gradient.position)
        if gradient.final is not None and id(gradient.final) in outputs:
            found.append((gradient.leaf, _producer(executable, outputs[id(gradient.final)])))
        elif passed is not None and passed in graph.updates:
            found.append((gradient.leaf, graph.producer_index(graph.root(graph.updates[passed]))))
    return found
