"""Memory report of a step, predicted from its plan before anything is allocated or run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.byte_sizes import size_text
from polyhal.hal.compile.capture.result import UNNAMED, StepInput
from polyhal.hal.compile.ir.graph import CapturedConstant, Graph, Node
from polyhal.hal.compile.scheduler.arena import LiveInterval, usage
from polyhal.hal.compile.scheduler.plan import Arena, Owner, StepPlan
from polyhal.hal.core.memory.pool import bucket

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_SHOWN = 8
"""Number of tensors listed for the arena; half as many are listed for every other kind of memory."""
_UNNAMED = (UNNAMED, "constant")
"""Default names of inputs."""


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """A tensor, or a temporary of a kernel: its spec, its origin, and the first and last step at which it is live."""

    nbytes: int
    what: str
    name: str
    steps: tuple[int, int] | None = None

    def __str__(self) -> str:
        lives = "" if self.steps is None else f"  steps {self.steps[0]}-{self.steps[1]}"
        return f"{_size(self.nbytes)}  {self.what}  {self.name}{lives}"


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """Bytes and tensors of one kind of memory, the largest first."""

    nbytes: int = 0
    entries: tuple[MemoryEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of a step on one device, in bytes by kind."""

    device: str
    parameters: MemoryKind
    """Leaves with gradients, and other read-only tensors of modules."""
    state: MemoryKind
    """Other tensors that the step changes in place: optimizer state, running statistics."""
    constants: MemoryKind
    """Other tensors that the step only reads."""
    arguments: MemoryKind
    results: MemoryKind
    """Tensors that the step returns."""
    gradients: MemoryKind
    """Gradients, and other tensors that outlive the step without being returned."""
    shared: int
    """Bytes of gradients that are allocated in the arena."""
    arena: MemoryKind
    """Tensors that are live only within a run, and share memory; the entries are live at the peak."""
    workspace: MemoryKind
    """Temporaries of kernels, and copies of operands for core members. They are part of the arena and counted there."""
    elsewhere: int
    """Bytes in use on the device by tensors outside the step."""
    largest_step: str
    """Step at which the arena is fullest."""

    @property
    def own(self) -> int:
        """Bytes that a run needs in addition to memory in use before it."""
        return self.arena.nbytes + self.results.nbytes + self.gradients.nbytes - self.shared

    @property
    def step(self) -> int:
        """Total bytes of the step."""
        return sum(p.nbytes for p in (self.parameters, self.state, self.constants, self.arguments)) + self.own

    @property
    def peak(self) -> int:
        """Peak bytes in use during a run, as `Device.memory_stats` counts them."""
        return self.step + self.elsewhere

    def __str__(self) -> str:
        lines = [f"{self.device}: at most {_size(self.peak).strip()} in use during a run"]
        for name in ("parameters", "state", "constants", "arguments", "results", "gradients", "arena"):
            kind: MemoryKind = getattr(self, name)
            if not kind.nbytes:
                continue
            within = (
                f", {_size(self.shared).strip()} of them in the arena" if name == "gradients" and self.shared else ""
            )
            lines.append(f"  {name:<11}{_size(kind.nbytes)}{within}")
            if name == "arena" and self.largest_step:
                lines.append(f"    fullest at {self.largest_step}:")
            shown = _SHOWN if name == "arena" else _SHOWN // 2
            lines += [f"    {entry}" for entry in kind.entries[:shown]]
            if len(kind.entries) > shown:
                rest = sum(e.nbytes for e in kind.entries[shown:])
                lines.append(f"    {_size(rest)}  in {len(kind.entries) - shown} more")
        if self.workspace.nbytes:
            lines.append(f"  workspace  {_size(self.workspace.nbytes)}  at most, within the arena")
            lines += [f"    {entry}" for entry in self.workspace.entries[: _SHOWN // 4]]
        if self.elsewhere:
            lines.append(f"  elsewhere  {_size(self.elsewhere)}  in use by tensors outside the step")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Memory of a step on each of its devices; `str` formats it."""

    devices: tuple[DeviceMemory, ...]

    @property
    def peak(self) -> int:
        """Sum of the peaks of all devices, in bytes."""
        return sum(d.peak for d in self.devices)

    def __str__(self) -> str:
        return "\n".join(map(str, self.devices))


def report(plan: StepPlan, allocated: Callable[[Device], int] = lambda device: 0) -> MemoryReport:
    """Return the report of a plan; `allocated` returns the bytes that its executable already holds in a device's pool."""
    devices = {d for d in plan.devices if d is not None}
    return MemoryReport(tuple(_DeviceReport(plan, d).memory(allocated(d)) for d in sorted(devices, key=str)))


class _DeviceReport:
    """Report of one device of a plan."""

    def __init__(self, plan: StepPlan, device: Device) -> None:
        self._plan = plan
        self._device = device
        self._graph: Graph = plan.graph
        self._names = plan.graph.names
        self._writers: dict[int, Node] = {}
        """Node that first writes each allocation."""
        for node in self._graph.nodes:
            for v in node.outputs:
                self._writers.setdefault(plan.buffers.slice_of(v)[0], node)

    def memory(self, allocated: int) -> DeviceMemory:
        """Return the memory of the step; its executable already holds `allocated` bytes of it."""
        by_kind, arguments = self._inputs()
        results, gradients, shared = self._results()
        arena = self._plan.arenas.get(self._device, Arena())
        step, at_peak = self._peak(arena)
        workspace = self._workspace(arena)
        known = sum(p.nbytes for p in (*by_kind.values(), arguments))
        return DeviceMemory(
            device=str(self._device.name),
            parameters=by_kind["parameters"],
            state=by_kind["state"],
            constants=by_kind["constants"],
            arguments=arguments,
            results=results,
            gradients=gradients,
            shared=shared,
            arena=MemoryKind(arena.layout.nbytes, at_peak),
            workspace=workspace,
            elsewhere=max(self._device.pool.used - allocated - known - self._replaced(), 0),
            largest_step=step,
        )

    def _inputs(self) -> tuple[dict[str, MemoryKind], MemoryKind]:
        """Return the captured memory by kind, and the arguments. Each buffer counts once."""
        written = {id(b) for b in self._plan.captured.mutated_buffers}
        leaves = {id(g.leaf.buffer) for g in self._plan.captured.gradients}
        seen: set[int] = set()
        by_kind: dict[str, list[MemoryEntry]] = {"parameters": [], "state": [], "constants": []}
        arguments = []
        for i, source in enumerate(self._plan.sources):
            if not self._graph.is_tensor(i):
                continue
            spec = self._graph.tensor(i)
            if isinstance(source, StepInput) and source.device is self._device:
                arguments.append(MemoryEntry(bucket(spec.nbytes), str(spec), self._names.get(i, "")))
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
            by_kind[kind].append(MemoryEntry(source.buffer.nbytes, str(spec), self._names.get(i, "")))
        return {kind: _kind_of(entries) for kind, entries in by_kind.items()}, _kind_of(arguments)

    def _results(self) -> tuple[MemoryKind, MemoryKind, int]:
        """Return the memory of results, the memory of live-outs, and the bytes of live-outs in the arena."""
        captured, buffers = self._plan.captured, self._plan.buffers
        shared = 0
        returned: list[MemoryEntry] = []
        live_outs: list[MemoryEntry] = []
        seen: set[int] = set()
        named = {id(g.final): self._leaf_name(g.leaf) for g in captured.gradients if g.final is not None}
        of_output = {output: named.get(id(t), "") for t, output in captured.live_outs}
        for output, value in enumerate(self._graph.outputs):
            number, _ = buffers.slice_of(value)
            spec = self._graph.tensor(value)
            if self._plan.devices[value] is not self._device:
                continue
            allocation = buffers.allocations[number]
            if allocation.source is None:
                if number in seen:
                    continue
                seen.add(number)
                spec = allocation.spec
            name = of_output.get(output, "")
            within = number in self._plan.gradients
            nbytes = spec.nbytes if within else bucket(spec.nbytes)
            shared += nbytes if within else 0
            entry = MemoryEntry(nbytes, str(spec), f"gradient of {name}" if name else self._writer(number))
            (live_outs if output in of_output else returned).append(entry)
        return _kind_of(returned), _kind_of(live_outs), shared

    def _replaced(self) -> int:
        """Return the bytes of current gradients that a run replaces."""
        nbytes = {}
        for g in self._plan.captured.gradients:
            now = g.leaf.stored_grad
            if g.replaced and now is not None and now is not g.final and now.device is self._device:
                nbytes[id(now.buffer)] = now.buffer.nbytes
        return sum(nbytes.values())

    def _peak(self, arena: Arena) -> tuple[str, tuple[MemoryEntry, ...]]:
        """Return the step at which an arena is fullest, and the tensors live at that step."""
        if not arena.intervals:
            return "", ()
        k = min(i.first for i in arena.intervals) + int(np.argmax(usage(arena.intervals)))
        entries = [
            self._entry(owner, interval)
            for owner, interval in zip(arena.owners, arena.intervals, strict=True)
            if interval.first <= k <= interval.last
        ]
        if k >= len(self._graph.nodes):
            return "the end", _kind_of(entries).entries
        node = self._graph.nodes[k]
        return f"step {k} of {len(self._graph.nodes)}, {_described(node)}", _kind_of(entries).entries

    def _workspace(self, arena: Arena) -> MemoryKind:
        """Return the temporaries of kernels, with the bytes of the kernel that needs the most."""
        totals: dict[int, int] = {}
        entries = []
        for owner, interval in zip(arena.owners, arena.intervals, strict=True):
            if owner.kind == "call":
                totals[owner.number] = totals.get(owner.number, 0) + interval.nbytes
                entries.append(self._entry(owner, interval))
        return MemoryKind(max(totals.values(), default=0), _kind_of(entries).entries)

    def _entry(self, owner: Owner, interval: LiveInterval) -> MemoryEntry:
        steps = (max(interval.first, 0), interval.last)
        if owner.kind == "allocation":
            allocation = self._plan.buffers.allocations[owner.number]
            return MemoryEntry(interval.nbytes, str(allocation.spec), self._writer(owner.number), steps)
        if owner.kind == "call":
            return MemoryEntry(interval.nbytes, "workspace", _described(self._graph.nodes[owner.number]), steps)
        return MemoryEntry(interval.nbytes, "copy", "of a value on its way to another's memory", steps)

    def _writer(self, allocation: int) -> str:
        node = self._writers.get(allocation)
        return "" if node is None else _described(node)

    def _leaf_name(self, leaf: Any) -> str:
        for i, source in enumerate(self._plan.sources):
            if isinstance(source, CapturedConstant) and source.buffer is leaf.buffer:
                return self._names.get(i, "") or str(leaf.ref.spec)
        return str(leaf.ref.spec)


def _described(node: Node) -> str:
    """Return the op of a node and its module, as text."""
    op = node.op.name
    if op in ("fused_elementwise", "foreach_elementwise"):
        op = "+".join(step[0] for step in node.bound["steps"])
    module = node.origin.module if node.origin is not None else ""
    return f"{op} in {module}" if module else op


def _kind_of(entries: Iterable[MemoryEntry]) -> MemoryKind:
    ordered = tuple(sorted(entries, key=lambda e: -e.nbytes))
    return MemoryKind(sum(e.nbytes for e in ordered), ordered)


def _size(nbytes: int) -> str:
    number, unit = size_text(nbytes).split()
    return f"{number:>8} {unit:<3}"


__all__ = ["DeviceMemory", "MemoryEntry", "MemoryKind", "MemoryReport", "report"]
