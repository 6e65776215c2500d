"""What memory a step needs: predicted from its plan, before anything is allocated or run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.capture.result import UNNAMED, CapturedConstant, StepInput
from polyhal.hal.ir.graph import Graph, Node
from polyhal.hal.layout import Spec
from polyhal.hal.memory.pool import bucket
from polyhal.hal.scheduler.arena import profile
from polyhal.hal.scheduler.calls import Call
from polyhal.hal.scheduler.plan import Arena, Plan

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_SHOWN = 8
"""Tensors listed for the arena; half as many for everything else."""
_UNNAMED = (UNNAMED, "constant")
"""What inputs are called that nobody has a name for."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor, or one temporary of a kernel: what it is, where it comes from, and between which steps it lives."""

    nbytes: int
    what: str
    name: str
    steps: tuple[int, int] | None = None

    def __str__(self) -> str:
        lives = "" if self.steps is None else f"  steps {self.steps[0]}-{self.steps[1]}"
        return f"{_size(self.nbytes)}  {self.what}  {self.name}{lives}"


@dataclass(frozen=True, slots=True)
class Part:
    """A kind of memory: its bytes and its tensors, the largest first."""

    nbytes: int = 0
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a step needs on one device, in bytes by kind."""

    device: str
    parameters: Part
    """Leaves that get gradients, and what modules else have that is only read."""
    state: Part
    """What else the step changes in place: optimizer state, running statistics."""
    constants: Part
    """What else it only reads."""
    arguments: Part
    results: Part
    """What it returns."""
    gradients: Part
    """Gradients, and other tensors that outlive it without being returned."""
    shared: int
    """The bytes of those of them that lie in the arena."""
    arena: Part
    """What lives only within a run, and shares memory; the entries are those at the step that needs the most."""
    workspace: Part
    """Temporaries of kernels. They lie in the arena and are no more on top of it."""
    transient: int
    """The most that one core method takes for copies of its operands."""
    elsewhere: int
    """What else is in use on the device, by tensors that the step does not know."""
    largest_step: str
    """The step of the run that needs the most of the arena."""

    @property
    def own(self) -> int:
        """What a run needs beside what is there before it."""
        return self.arena.nbytes + self.results.nbytes + self.gradients.nbytes - self.shared + self.transient

    @property
    def step(self) -> int:
        """What the step needs altogether."""
        return sum(p.nbytes for p in (self.parameters, self.state, self.constants, self.arguments)) + self.own

    @property
    def peak(self) -> int:
        """The most bytes in use during a run, as `Device.memory_stats` counts them."""
        return self.step + self.elsewhere

    def __str__(self) -> str:
        lines = [f"{self.device}: at most {_size(self.peak).strip()} in use during a run"]
        for name in ("parameters", "state", "constants", "arguments", "results", "gradients", "arena"):
            part: Part = getattr(self, name)
            if not part.nbytes:
                continue
            within = (
                f", {_size(self.shared).strip()} of them in the arena" if name == "gradients" and self.shared else ""
            )
            lines.append(f"  {name:<11}{_size(part.nbytes)}{within}")
            if name == "arena" and self.largest_step:
                lines.append(f"    fullest at {self.largest_step}:")
            shown = _SHOWN if name == "arena" else _SHOWN // 2
            lines += [f"    {entry}" for entry in part.entries[:shown]]
            if len(part.entries) > shown:
                rest = sum(e.nbytes for e in part.entries[shown:])
                lines.append(f"    {_size(rest)}  in {len(part.entries) - shown} more")
        if self.workspace.nbytes:
            lines.append(f"  workspace  {_size(self.workspace.nbytes)}  at most, within the arena")
            lines += [f"    {entry}" for entry in self.workspace.entries[: _SHOWN // 4]]
        if self.transient:
            lines.append(f"  transient  {_size(self.transient)}  for copies of operands")
        if self.elsewhere:
            lines.append(f"  elsewhere  {_size(self.elsewhere)}  in use by tensors that the step does not know")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What a step needs on each of its devices. As text it is meant to be read."""

    devices: tuple[DeviceMemory, ...]

    @property
    def peak(self) -> int:
        """The most bytes in use during a run, on all devices together."""
        return sum(d.peak for d in self.devices)

    def __str__(self) -> str:
        return "\n".join(map(str, self.devices))


def report(plan: Plan, taken: Callable[[Device], int] = lambda device: 0) -> MemoryReport:
    """The report of a plan; `taken` says what a program that is made of it has from a device's pool already."""
    devices = {d for d in plan.devices if d is not None}
    return MemoryReport(tuple(_Look(plan, d).memory(taken(d)) for d in sorted(devices, key=str)))


class _Look:
    """A plan, seen from one device."""

    def __init__(self, plan: Plan, device: Device) -> None:
        self._plan = plan
        self._device = device
        self._graph: Graph = plan.graph
        self._names = plan.graph.names
        self._makers: dict[int, Node] = {}
        """The node that first writes each storage."""
        for node in self._graph.nodes:
            for v in node.outputs:
                found = plan.storages.of[v]
                if found is not None:
                    self._makers.setdefault(found[0], node)

    def memory(self, taken: int) -> DeviceMemory:
        held, arguments = self._inputs()
        results, gradients, shared = self._results()
        arena = self._plan.arenas.get(self._device, Arena())
        step, at_most = self._fullest(arena)
        workspace = self._workspace(arena)
        known = sum(p.nbytes for p in (*held.values(), arguments))
        return DeviceMemory(
            device=str(self._device.name),
            parameters=held["parameters"],
            state=held["state"],
            constants=held["constants"],
            arguments=arguments,
            results=results,
            gradients=gradients,
            shared=shared,
            arena=Part(arena.placement.nbytes, at_most),
            workspace=workspace,
            transient=max((c.resolution.temporary for c in self._calls()), default=0),
            elsewhere=max(self._device.pool.used - taken - known - self._replaced(), 0),
            largest_step=step,
        )

    def _calls(self) -> Iterator[Call]:
        """The calls that run on the device."""
        for call in self._plan.calls:
            if call is not None and call.node.origin is not None and call.node.origin.device is self._device:
                yield call

    def _inputs(self) -> tuple[dict[str, Part], Part]:
        """What the step finds: memory that it holds by kind, and its arguments. Each buffer counts once."""
        written = {id(b) for b in self._plan.captured.mutated_buffers}
        leaves = {id(g.leaf.buffer) for g in self._plan.captured.gradients}
        seen: set[int] = set()
        held: dict[str, list[Entry]] = {"parameters": [], "state": [], "constants": []}
        arguments = []
        for i, source in enumerate(self._plan.sources):
            spec = self._graph.specs[i]
            if not isinstance(spec, Spec):
                continue
            if isinstance(source, StepInput) and source.device is self._device:
                arguments.append(Entry(bucket(spec.nbytes), str(spec), self._names.get(i, "")))
            if (
                not isinstance(source, CapturedConstant)
                or source.device is not self._device
                or id(source.buffer) in seen
            ):
                continue
            seen.add(id(source.buffer))
            name = self._names.get(i, _UNNAMED[0])
            if id(source.buffer) in leaves:
                kind = "parameters"
            elif id(source.buffer) in written:
                kind = "state"
            else:
                kind = "constants" if name.partition("~")[0] in _UNNAMED else "parameters"
            held[kind].append(Entry(source.buffer.nbytes, str(spec), self._names.get(i, "")))
        return {kind: _part(entries) for kind, entries in held.items()}, _part(arguments)

    def _results(self) -> tuple[Part, Part, int]:
        """Memory of what the step returns, of what it leaves behind, and how much of that lies in the arena."""
        captured, storages = self._plan.captured, self._plan.storages
        shared = 0
        returned: list[Entry] = []
        left: list[Entry] = []
        seen: set[int] = set()
        named = {id(g.final): self._leaf_name(g.leaf) for g in captured.gradients if g.final is not None}
        of_output = {output: named.get(id(t), "") for t, output in captured.live_outs}
        for output, value in enumerate(self._graph.outputs):
            place = storages.of[value]
            spec = self._graph.specs[value]
            assert place is not None
            assert isinstance(spec, Spec)
            if self._plan.devices[value] is not self._device:
                continue
            storage = storages.storages[place[0]]
            if storage.source is None:
                if place[0] in seen:
                    continue
                seen.add(place[0])
                spec = storage.spec
            name = of_output.get(output, "")
            within = place[0] in self._plan.gradients
            nbytes = spec.nbytes if within else bucket(spec.nbytes)
            shared += nbytes if within else 0
            entry = Entry(nbytes, str(spec), f"gradient of {name}" if name else self._made(place[0]))
            (left if output in of_output else returned).append(entry)
        return _part(returned), _part(left), shared

    def _replaced(self) -> int:
        """Gradients that lie there now and that a run replaces."""
        found = {}
        for g in self._plan.captured.gradients:
            now = g.leaf.stored_grad
            if g.replaced and now is not None and now is not g.final and now.device is self._device:
                found[id(now.buffer)] = now.buffer.nbytes
        return sum(found.values())

    def _fullest(self, arena: Arena) -> tuple[str, tuple[Entry, ...]]:
        """The step that needs the most of an arena, and what lives then."""
        if not arena.needs:
            return "", ()
        k = min(n.first for n in arena.needs) + int(np.argmax(profile(arena.needs)))
        entries = [
            self._entry(owner, need)
            for owner, need in zip(arena.owners, arena.needs, strict=True)
            if need.first <= k <= need.last
        ]
        if k >= len(self._graph.nodes):
            return "the end", _part(entries).entries
        node = self._graph.nodes[k]
        return f"step {k} of {len(self._graph.nodes)}, {_place(node)}", _part(entries).entries

    def _workspace(self, arena: Arena) -> Part:
        """The temporaries of kernels; the bytes are those of the kernel that needs the most."""
        totals: dict[int, int] = {}
        entries = []
        for owner, need in zip(arena.owners, arena.needs, strict=True):
            if owner.kind == "call":
                totals[owner.number] = totals.get(owner.number, 0) + need.nbytes
                entries.append(self._entry(owner, need))
        return Part(max(totals.values(), default=0), _part(entries).entries)

    def _entry(self, owner: Any, need: Any) -> Entry:
        steps = (max(need.first, 0), need.last)
        if owner.kind == "storage":
            storage = self._plan.storages.storages[owner.number]
            return Entry(need.nbytes, str(storage.spec), self._made(owner.number), steps)
        if owner.kind == "call":
            return Entry(need.nbytes, "workspace", _place(self._graph.nodes[owner.number]), steps)
        return Entry(need.nbytes, "copy", "of a value on its way to another's memory", steps)

    def _made(self, storage: int) -> str:
        node = self._makers.get(storage)
        return "" if node is None else _place(node)

    def _leaf_name(self, leaf: Any) -> str:
        for i, source in enumerate(self._plan.sources):
            if isinstance(source, CapturedConstant) and source.buffer is leaf.buffer:
                return self._names.get(i, "") or str(leaf.ref.spec)
        return str(leaf.ref.spec)


def _place(node: Node) -> str:
    """What a node does, and in which module."""
    op = node.op.name
    if op == "fused_elementwise":
        op = "+".join(step[0] for step in node.op.bind(node.params)["steps"])
    module = node.origin.module if node.origin is not None else ""
    return f"{op} in {module}" if module else op


def _part(entries: Iterable[Entry]) -> Part:
    ordered = tuple(sorted(entries, key=lambda e: -e.nbytes))
    return Part(sum(e.nbytes for e in ordered), ordered)


def _size(nbytes: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale:
            return f"{nbytes / scale:8.2f} {unit}"
    return f"{nbytes:8d} B  "


__all__ = ["DeviceMemory", "Entry", "MemoryReport", "Part", "report"]
