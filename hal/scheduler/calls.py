"""Kernel selection for the nodes of a graph: the calls of a replay, before they are bound to memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from polyhal.hal.capture.runtime_scalars import current_values
from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.layout import Ref
from polyhal.hal.memory.host_bytes import byte_view
from polyhal.hal.ops.traits import Trait
from polyhal.hal.planning.resolution import Resolution, ResolutionStep
from polyhal.hal.settings.state import settings


class NodeCall(NamedTuple):
    """How a node runs: a function, with values of the graph and literals for arguments."""

    run: Callable[..., None]
    inputs: tuple[Any, ...]
    outputs: tuple[int, ...]
    workspace: tuple[int, ...]
    """Bytes of temporaries; their handles follow the outputs."""
    direct: bool
    """Whether `run` takes all arguments in a row, as launches do, rather than as (inputs, outputs)."""
    node: Node
    resolution: Resolution

    def bound(
        self, inputs: list[Any], outputs: list[Any], workspace: list[Any], *, runtime_scalars: bool
    ) -> Callable[[], None]:
        """This call without arguments; `runtime_scalars` among the inputs are read at each run."""
        run = self.run
        if not runtime_scalars:
            return partial(run, *inputs, *outputs, *workspace) if self.direct else partial(run, inputs, outputs)

        def refreshed() -> None:
            now = current_values(inputs)
            if self.direct:
                run(*now, *outputs, *workspace)
            else:
                run(now, outputs)

        return refreshed


def select_calls(graph: Graph, aliases: Sequence[tuple[int, ...]], devices: Sequence[Any]) -> list[NodeCall | None]:
    """The calls of all nodes, given the operands that outputs overwrite and the devices of all values; None for views."""
    return [
        _transfer(graph, n, devices) if Trait.CROSS_DEVICE in n.op.traits else _select(graph, n, a)
        for n, a in zip(graph.nodes, aliases, strict=True)
    ]


def _select(graph: Graph, node: Node, aliases: tuple[int, ...]) -> NodeCall | None:
    """Resolve a node; `aliases` gives the operand that each output overwrites, and is empty if nothing runs for the node."""
    if not aliases:
        return None
    specs = tuple(graph.spec_of(x) for x in node.inputs)
    overwritten = aliases if any(a >= 0 for a in aliases) else ()
    with settings.restored(node.place.settings):
        planner = node.device.planner
        run, launch, note = planner.resolve(node.op, specs, graph.output_specs(node), node.bound, overwritten)
    if launch is not None:
        return NodeCall(launch, node.inputs, node.outputs, launch.workspace, True, node, note)
    return NodeCall(run, node.inputs, node.outputs, (), False, node, note)


def _transfer(graph: Graph, node: Node, devices: Sequence[Any]) -> NodeCall:
    """A copy between devices through the host, which every device can do."""
    source_device, device = devices[node.value(0)], node.device

    def run(inputs: Sequence[Ref], outputs: Sequence[Ref]) -> None:
        source, target = inputs[0], outputs[0]
        if source.size:
            offset = target.offset * target.dtype.itemsize
            device.backend.copy_to_device(byte_view(source_device.download(source)), target.handle, offset)

    spec = graph.tensor(node.value(0))
    note = Resolution(node.op.name, (spec,), f"from {source_device} through the host", ResolutionStep.CORE)
    return NodeCall(run, node.inputs, node.outputs, (), False, node, note)
