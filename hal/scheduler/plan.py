"""The plan of a captured step: which kernels run, in what order, and where everything lies. Nothing is allocated yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.capture.result import CapturedConstant, CapturedGraph, InputSource, StepInput
from polyhal.hal.ir.graph import Graph
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.passes.pipeline import optimize
from polyhal.hal.scheduler.arena import Need, Placement, place
from polyhal.hal.scheduler.buffers import Storages, assign
from polyhal.hal.scheduler.calls import Call, prepared
from polyhal.hal.scheduler.schedule import ordered

if TYPE_CHECKING:
    from polyhal.hal.device import Device


class Copy(NamedTuple):
    """A value that is copied to where an input lies, after the last step."""

    value: int
    target: int
    staged: bool
    """Whether it goes through memory in between, because an earlier copy may overwrite it."""


class Owner(NamedTuple):
    """Whose need of memory it is: a storage's, a call's (its `part`-th temporary), or a staged copy's."""

    kind: str
    number: int
    part: int = 0


@dataclass(slots=True)
class Arena:
    """Memory of one device for what lives only within a run."""

    owners: list[Owner] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)
    placement: Placement = field(default_factory=lambda: Placement((), ()))

    def add(self, owner: Owner, need: Need) -> None:
        """Ask for memory."""
        self.owners.append(owner)
        self.needs.append(need)


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph after all passes, and what its values and calls need."""

    captured: CapturedGraph
    graph: Graph
    sources: list[InputSource]
    """Where the graph's inputs come from: those of the capture, then what passes computed."""
    devices: list[Any]
    """The device of every value; None for numbers."""
    storages: Storages
    calls: list[Call | None]
    copies: list[Copy]
    arenas: dict[Device, Arena]
    gradients: frozenset[int]
    """Storages of gradients that the step leaves behind in the arenas."""


def plan(captured: CapturedGraph, graph: Graph | None = None, *, apart: bool = False) -> Plan:
    """Plan a step; `graph` is what passes made of it, if they have run already.

    Gradients that the step leaves behind, and does not read before it makes them, lie in the arenas, so that their memory
    serves others first; `apart` gives them memory of their own, as results have.
    """
    inside = frozenset() if apart else captured.write_only_gradients()
    graph = ordered(optimize(captured.graph), inside) if graph is None else graph
    sources = [*captured.sources, *graph.constants]
    devices = _devices(sources, graph)
    storages = assign(graph, devices.__getitem__)
    calls = prepared(graph, storages.aliases, devices)
    copies = _copies(storages)
    gradients = frozenset(
        n
        for n in storages.holding(graph, inside)
        if storages.storages[n].device.capabilities.suballocation  # type: ignore[attr-defined]
    )
    arenas = _arenas(graph, devices, storages, calls, copies, gradients)
    return Plan(captured, graph, sources, devices, storages, calls, copies, arenas, gradients)


def _devices(sources: Sequence[InputSource], graph: Graph) -> list[Any]:
    """The device of every value; None for numbers."""
    found: list[Any] = [None] * len(graph.specs)
    for i, source in enumerate(sources):
        if isinstance(source, (StepInput, CapturedConstant)):
            found[i] = source.device
    for node in graph.nodes:
        assert node.origin is not None
        for v in node.outputs:
            found[v] = node.origin.device
    return found


def _copies(storages: Storages) -> list[Copy]:
    targets = {i for _, i in storages.copies}
    found = []
    for value, target in storages.copies:
        place = storages.of[value]
        assert place is not None
        found.append(Copy(value, target, storages.storages[place[0]].source in targets))
    return found


def _arenas(
    graph: Graph,
    devices: list[Any],
    storages: Storages,
    calls: list[Call | None],
    copies: list[Copy],
    gradients: frozenset[int],
) -> dict[Device, Arena]:
    """Places for storages that are neither inputs nor results, for `gradients`, the calls' temporaries, and staged copies."""
    arenas: dict[Device, Arena] = {}
    for number, storage in enumerate(storages.storages):
        own = storage.source is None and (not storage.output or number in gradients)
        if own and storage.spec.nbytes:
            need = Need(storage.spec.nbytes, storage.first, storage.last)
            arenas.setdefault(storage.device, Arena()).add(Owner("storage", number), need)  # type: ignore[arg-type]
    for k, call in enumerate(calls):
        for part, nbytes in enumerate(call.workspace if call is not None else ()):
            arena = arenas.setdefault(devices[graph.nodes[k].outputs[0]], Arena())
            arena.add(Owner("call", k, part), Need(nbytes, k, k, front=True))
    end = len(graph.nodes)
    for n, copy in enumerate(copies):
        spec = graph.specs[copy.value]
        if copy.staged and isinstance(spec, Spec) and spec.size:
            nbytes = contiguous(spec.dtype, spec.shape).nbytes
            arenas.setdefault(devices[copy.value], Arena()).add(Owner("copy", n), Need(nbytes, end, end))
    for device, arena in arenas.items():
        capabilities = device.capabilities
        arena.placement = place(arena.needs, capabilities.limits.max_allocation, shared=capabilities.suballocation)
    return arenas
