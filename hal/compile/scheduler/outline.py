"""Outline of a planned step for tools that predict or attribute costs: modules of its nodes, live bytes, and gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.compile.capture.result import StepInput
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
    result: int
    """Position of the node that computes the first result."""
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
    graph, captured = executable.graph, executable.captured
    arena = executable.plan.arenas.get(device, Arena())
    least = peak_bytes(arena.intervals)
    return StepOutline(
        modules=tuple(node.origin.module if node.origin is not None else "" for node in graph.nodes),
        result=_producer(executable, captured.results[0]),
        live=_live_bytes(executable, arena),
        fragmentation=arena.layout.nbytes / least if least else 1.0,
        gradients=tuple(_gradients(executable)),
        _nodes={id(node): k for k, node in enumerate(graph.nodes)},
    )


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
