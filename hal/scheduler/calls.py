"""How the nodes of a graph run: the calls of a replay, before they are bound to memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from polyhal.hal.capture.runtime_scalars import current_values
from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.layout import Ref
from polyhal.hal.ops.opdef import OPS, Value
from polyhal.hal.planning.host import byte_view
from polyhal.hal.planning.resolution import Resolution, Step
from polyhal.hal.settings.state import settings


class Call(NamedTuple):
    """One step of a run: what is called, with values of the graph (by number) and literals."""

    run: Callable[..., None]
    inputs: tuple[Any, ...]
    outputs: tuple[int, ...]
    workspace: tuple[int, ...]
    """Bytes of temporaries; their handles follow the outputs."""
    direct: bool
    """Whether `run` takes all arguments in a row, as launches do, rather than as (inputs, outputs)."""
    node: Node
    resolution: Resolution

    def bound(self, inputs: list[Any], outputs: list[Any], workspace: list[Any], *, live: bool) -> Callable[[], None]:
        """This call without arguments; `live` numbers among the inputs are looked at each time."""
        run = self.run
        if not live:
            return partial(run, *inputs, *outputs, *workspace) if self.direct else partial(run, inputs, outputs)

        def refreshed() -> None:
            now = current_values(inputs)
            if self.direct:
                run(*now, *outputs, *workspace)
            else:
                run(now, outputs)

        return refreshed


def prepare(graph: Graph, node: Node, aliases: tuple[int, ...]) -> Call | None:
    """Choose how a node runs, given which operand each output replaces; None for views, for which there are none."""
    assert node.origin is not None
    if not aliases:
        return None
    specs = tuple(graph.spec_of(x) for x in node.inputs)
    outputs = tuple(graph.specs[i] for i in node.outputs)
    replaced = aliases if any(a >= 0 for a in aliases) else ()
    with settings.restored(node.origin.settings):
        run, launch, note = node.origin.device.planner.resolve(
            node.op,
            specs,
            outputs,  # type: ignore[arg-type]
            node.op.bind(node.params),
            replaced,
        )
    if launch is not None:
        return Call(launch, node.inputs, node.outputs, launch.workspace, True, node, note)
    return Call(run, node.inputs, node.outputs, (), False, node, note)


def prepared(graph: Graph, aliases: Sequence[tuple[int, ...]], devices: Sequence[Any]) -> list[Call | None]:
    """The calls of all nodes, given the devices of all values."""
    return [
        _transfer(graph, n, devices) if n.op is OPS["transfer"] else prepare(graph, n, a)
        for n, a in zip(graph.nodes, aliases, strict=True)
    ]


def _transfer(graph: Graph, node: Node, devices: Sequence[Any]) -> Call:
    """A copy between devices, through the host: what every device can do."""
    (x,) = node.inputs
    assert isinstance(x, Value)
    assert node.origin is not None
    home, device = devices[x.index], node.origin.device

    def run(inputs: Sequence[Ref], outputs: Sequence[Ref]) -> None:
        source, target = inputs[0], outputs[0]
        if source.size:
            offset = target.offset * target.dtype.itemsize
            device.backend.copy_to_device(byte_view(home.download(source)), target.handle, offset)

    note = Resolution(node.op.name, str(graph.specs[x.index]), f"from {home} through the host", Step.CORE)
    return Call(run, node.inputs, node.outputs, (), False, node, note)
