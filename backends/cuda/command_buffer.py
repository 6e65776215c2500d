"""Command buffers as CUDA graphs: recorded launches that the driver submits by one call.

Each launch is a node with its own arguments. Small launches follow the launches whose memory they use (`dependencies`) and run
at the same time as others, in steps of mostly small launches; launches that fill the device also follow each other. A launch
that awaits its inputs itself may start before its last predecessor ends (programmatic dependent launch), where no launch in
front of it writes the memory that it reads before. A submission updates the nodes whose arguments have changed since the last
one; a submission that is still running keeps its arguments.
A single launch needs no graph: it costs the host as much, and less where its arguments have changed, and may start before the
one in front of it in the stream ends, which launches of two graphs cannot.
Source: CUDA Driver API, sections "Graph Management" and "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.backends.common.cuda_driver import NULL, WITH_EDGES, ffi
from polyhal.backends.common.launching.launch_recorder import record_launches
from polyhal.backends.common.launching.runtime_scalars import Numbers
from polyhal.backends.common.launching.scalar_conversion import CONVERTERS
from polyhal.backends.cuda.dependencies import SlotAliases, predecessors
from polyhal.backends.cuda.launch import CudaBoundLaunch, PreparedLaunch
from polyhal.hal.protocol import BindingSlot, RecordedLaunch

if TYPE_CHECKING:
    from polyhal.backends.cuda.runtime import CudaRuntime


def record(runtime: CudaRuntime, calls: Sequence[Callable[[], None]]) -> CudaCommandBuffer:
    """Record the launches of `calls`."""
    return CudaCommandBuffer(runtime, *record_launches(runtime, calls))


class _Operand(NamedTuple):
    """An argument of a launch that follows a binding slot."""

    launch: int
    set: Callable[[int, int], None]
    """Sets the address and the offset."""
    start: int
    """Offset of the operand from the start of the slot's memory, in elements."""


class _Scalar(NamedTuple):
    """An argument of a launch that follows a number."""

    launch: int
    place: int
    convert: Callable[[Any], int | float]


class CudaCommandBuffer:
    """Launches as the nodes of a graph. Implements `polyhal.hal.protocol.CommandBuffer`."""

    def __init__(
        self,
        runtime: CudaRuntime,
        launches: Sequence[CudaBoundLaunch],
        origins: Sequence[int],
        kept: Sequence[object] = (),
    ) -> None:
        """`origins` has the position of each launch's call; `kept` is referenced as long as the buffer."""
        self._runtime = runtime
        self._kept = kept
        self.bound = tuple(launches)
        self._alone = self.bound[0].prepared if len(self.bound) == 1 else None
        """The launch, if it is the only one."""
        self.launches = tuple(RecordedLaunch(i, b.name) for i, b in zip(origins, launches, strict=True))
        self._operands: dict[BindingSlot, list[_Operand]] = {}
        self._numbers: Numbers[_Scalar] = Numbers()
        self._memory: dict[BindingSlot, Any] = {}
        """The memory of each slot at the last submission, which must outlive it."""
        for i, b in enumerate(launches):
            for place, slot, start in b.slots:
                self._operands.setdefault(slot, []).append(_Operand(i, b.prepared.block.setter(place), start))
            for place, live, kind in b.numbers:
                self._numbers.follow(live, _Scalar(i, place, CONVERTERS[kind]))
        self._follows_numbers = bool(self._numbers)
        self._early = {id(memory) for b in launches for memory in b.early}
        self._graph: _Graph | None = None
        self._branching = _BRANCHING_GRAPHS
        """Number of graphs with branches that may still be built."""
        self._stale: set[int] = set()
        """Launches with arguments that the graph lacks."""
        self._launch: Any = runtime.driver.lib.cuGraphLaunch
        self._calling = runtime.calling(f"submitting {len(self.bound)} recorded launches")

    def submit(self, rebound: Collection[BindingSlot]) -> None:
        """Set the arguments that have changed, then enqueue all launches."""
        if rebound or self._follows_numbers:
            self._find_changes(rebound)
        runtime = self._runtime
        stream = runtime.streams.only or runtime.streams.current()
        alone = self._alone
        if alone is not None:
            runtime.start(alone, stream)
            return
        if runtime.profile is not None or not self.bound:
            for b in self.bound:
                runtime.start(b.prepared, stream)
            return
        handle = stream.handle
        if self._graph is not None and not self._stale and runtime.context.is_current():
            status = self._launch(self._graph.executable, handle)
            if not status:
                return
        with self._calling:
            if self._graph is None:
                self._graph = _Graph(runtime, self.bound, branches=self._branching > 0)
                self._branching -= 1
            else:
                self._graph.update(self._stale)
            self._stale.clear()
            self._graph.launch(handle)

    def _find_changes(self, rebound: Collection[BindingSlot]) -> None:
        """Set the arguments that have changed."""
        graph = self._graph
        if graph is not None and graph.aliases is not None and graph.aliases.changed(rebound):
            self._graph = None
        for slot in rebound:
            found = self._operands.get(slot)
            if found:
                self._memory[slot] = slot.handle
                address = slot.handle.address
                if graph is not None and (id(slot) in self._early or address in graph.early):
                    self._graph = None
                for operand in found:
                    operand.set(address, slot.offset + operand.start)
                    self._stale.add(operand.launch)
        for value, scalars in self._numbers.changed():
            for scalar in scalars:
                self.bound[scalar.launch].prepared.block.set(scalar.place, scalar.convert(value))
                self._stale.add(scalar.launch)


_PROGRAMMATIC_PORT, _PROGRAMMATIC = 1, 1
"""CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC and CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC."""


_BRANCHING_GRAPHS = 3
"""Graphs that a command buffer builds because slots were bound to memory that other operands use. A graph without branches is
valid for every binding."""


_MOSTLY_SMALL, _OFTEN_EARLY = 2 / 3, 1 / 4
"""Least share of small launches, and the bound on the share of launches that start early one after the other, with branches.

Branches take 3 to 5 % off training steps of small models. Large launches leave no room for others, and in token-by-token
generation each launch starts before the end of the one in front of it already.
"""


class _Graph:
    """An executable graph."""

    def __init__(self, runtime: CudaRuntime, launches: Sequence[CudaBoundLaunch], *, branches: bool) -> None:
        """Build the graph from the launches' argument blocks. The context must be current. Raises CudaError.

        Without `branches`, each launch follows the one in front of it.
        """
        self._context = runtime.context
        self._driver = driver = runtime.driver
        self._params = [_node_params(b.prepared) for b in launches]
        self.aliases: SlotAliases | None = None
        """None if the order of the launches does not depend on the memory of slots."""
        before = [(i - 1,) * (i > 0) for i in range(len(launches))]
        early = _early_starts(launches, before) if driver.version >= WITH_EDGES else {}
        small = sum(b.is_small for b in launches)
        if branches and small >= _MOSTLY_SMALL * len(launches) and len(early) < _OFTEN_EARLY * len(launches):
            large = {i for i, b in enumerate(launches) if not b.is_small}
            before = predecessors([[a.located() for a in b.accesses] for b in launches], large)
            early = _early_starts(launches, before) if driver.version >= WITH_EDGES else {}
            self.aliases = SlotAliases([b.accesses for b in launches])
        self.early = {_address(memory) for i in early for memory in launches[i].early}
        """Addresses of the memory that launches read before a launch in front of them ends."""
        self._nodes: list[Any] = []
        self._graph = driver.value("cuGraphCreate", "CUgraph *", 0)
        for i, params in enumerate(self._params):
            awaited = [self._nodes[k] for k in before[i] if k != early.get(i)]
            after = ffi.new("CUgraphNode[]", awaited) if awaited else NULL
            node = driver.value("cuGraphAddKernelNode_v2", "CUgraphNode *", self._graph, after, len(awaited), params)
            if i in early:
                edge = ffi.new("CUgraphEdgeData *", [_PROGRAMMATIC_PORT, 0, _PROGRAMMATIC])
                ends = (ffi.new("CUgraphNode[]", [n]) for n in (self._nodes[early[i]], node))
                driver.call("cuGraphAddDependencies_v2", self._graph, *ends, edge, 1)
            self._nodes.append(node)
        self.executable = driver.value("cuGraphInstantiateWithFlags", "CUgraphExec *", self._graph, 0)

    def update(self, launches: Collection[int]) -> None:
        """Pass the arguments of some launches to their nodes. The context must be current. Raises CudaError."""
        for i in launches:
            self._driver.call("cuGraphExecKernelNodeSetParams_v2", self.executable, self._nodes[i], self._params[i])

    def launch(self, stream: Any) -> None:
        """Enqueue all nodes. The context must be current: the driver crashes without one. Raises CudaError."""
        self._driver.call("cuGraphLaunch", self.executable, stream)

    def __del__(self) -> None:
        with self._context:
            if hasattr(self, "executable"):
                self._driver.lib.cuGraphExecDestroy(self.executable)
            if hasattr(self, "_graph"):
                self._driver.lib.cuGraphDestroy(self._graph)


def _early_starts(launches: Sequence[CudaBoundLaunch], before: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """Return the launches that may start before the last of their predecessors ends, with that predecessor.

    They await it, and read nothing early that a launch in front of them may write.
    """
    written: set[int] = set()
    found: dict[int, int] = {}
    for i, b in enumerate(launches):
        if before[i] and b.prepared.dependent and not written & {_address(memory) for memory in b.early}:
            found[i] = before[i][-1]
        written |= {_address(a.memory) for a in b.accesses if a.writes}
    return found


def _address(memory: Any) -> int:
    """Return the address of memory, or of the memory in a slot."""
    return int(memory.handle.address if isinstance(memory, BindingSlot) else memory.address)


def _node_params(launch: PreparedLaunch) -> Any:
    """Return the parameters of a node, which point to the launch's argument block."""
    c = launch.config
    geometry = (c.grid_x, c.grid_y, c.grid_z, c.block_x, c.block_y, c.block_z, c.shared_bytes)
    return ffi.new("CUDA_KERNEL_NODE_PARAMS *", [launch.function, *geometry, launch.block.pointers, NULL, NULL, NULL])
