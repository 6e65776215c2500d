# ruff: noqa: N802 - the names are those of the library
"""Graphs of the emulated driver: kernel nodes with copies of their arguments, and executable copies of graphs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from emulated_machine import number_of
from emulated_programs import check_attribute, geometry_of
from emulated_statuses import INVALID_HANDLE, INVALID_VALUE, Refused

from polyhal.backends.common.cuda_driver import ffi

if TYPE_CHECKING:
    from emulated_machine import EmulatedContext, Machine, Operation
    from emulated_programs import EmulatedLaunch, ProgramFunctions


@dataclass(frozen=True)
class Node:
    """A launch, which runs after the nodes `after`."""

    launch: EmulatedLaunch
    after: tuple[int, ...]


@dataclass(eq=False)
class EmulatedGraph:
    """Nodes by their handles."""

    nodes: dict[int, Node] = field(default_factory=dict)


@dataclass(eq=False)
class Executable:
    """A graph as it was when it was instantiated, with the updates since."""

    context: EmulatedContext
    nodes: dict[int, Node]
    last: Operation | None = None
    """The last launch of the graph: the driver runs them one after the other."""


class GraphFunctions:
    """The driver's functions for graphs."""

    def __init__(self, machine: Machine, programs: ProgramFunctions) -> None:
        self._machine = machine
        self._programs = programs

    def cuGraphCreate(self, graph: Any, flags: int) -> None:
        if flags:
            raise Refused(INVALID_VALUE, f"flags {flags}")
        graph[0] = self._machine.handles.new("CUgraph", EmulatedGraph())

    def cuGraphAddKernelNode_v2(self, node: Any, graph: Any, dependencies: Any, count: int, params: Any) -> None:
        found: EmulatedGraph = self._machine.handles.get("CUgraph", graph)
        after = tuple(number_of(dependencies[i]) for i in range(count))
        if not all(number in found.nodes for number in after):
            raise Refused(INVALID_VALUE, "a dependency is not a node of the graph")
        node[0] = self._machine.handles.new("CUgraphNode", found)
        found.nodes[number_of(node[0])] = Node(self._launch(params), after)

    def cuGraphAddDependencies_v2(self, graph: Any, before: Any, after: Any, edges: Any, count: int) -> None:
        """Kernels await the ones in front of them: programmatic edges order them like others."""
        nodes = self._machine.handles.get("CUgraph", graph).nodes
        for i in range(count):
            first, second, edge = number_of(before[i]), number_of(after[i]), edges[i]
            if not {first, second} <= nodes.keys() or (edge.from_port, edge.to_port, edge.type) != (1, 0, 1):
                raise Refused(
                    INVALID_VALUE, f"an edge from port {edge.from_port} to {edge.to_port} of type {edge.type}"
                )
            nodes[second] = replace(nodes[second], after=(*nodes[second].after, first))

    def cuGraphKernelNodeSetAttribute(self, node: Any, attribute: int, value: Any) -> None:
        self._machine.handles.get("CUgraphNode", node)
        check_attribute(attribute, value[0])

    def cuGraphInstantiateWithFlags(self, executable: Any, graph: Any, flags: int) -> None:
        context = self._machine.current()
        found: EmulatedGraph = self._machine.handles.get("CUgraph", graph)
        if flags:
            raise Refused(INVALID_VALUE, f"flags {flags}")
        executable[0] = self._machine.handles.new("CUgraphExec", Executable(context, dict(found.nodes)))

    def cuGraphExecKernelNodeSetParams_v2(self, executable: Any, node: Any, params: Any) -> None:
        self._machine.current()
        found: Executable = self._machine.handles.get("CUgraphExec", executable)
        number = number_of(node)
        if number not in found.nodes:
            raise Refused(INVALID_VALUE, "the node is not in the graph")
        launch = self._launch(params)
        if launch.function.module.context is not found.nodes[number].launch.function.module.context:
            raise Refused(INVALID_VALUE, f"{launch.function.name} is loaded on another device")
        found.nodes[number] = replace(found.nodes[number], launch=launch)

    def cuGraphLaunch(self, executable: Any, stream: Any) -> None:
        queue = self._machine.stream(stream)
        found: Executable = self._machine.handles.get("CUgraphExec", executable)
        launches = _in_order(found.nodes)  # later updates do not change what was launched
        if any(launch.function.module.context is not queue.context for launch in launches):
            raise Refused(INVALID_HANDLE, "the graph has kernels of another device")

        def run() -> None:
            for launch in launches:
                self._programs.run(queue.context, launch)

        found.last = queue.add(run, () if found.last is None else (found.last,))

    def cuGraphExecDestroy(self, executable: Any) -> None:
        self._machine.handles.drop("CUgraphExec", executable)

    def cuGraphDestroy(self, graph: Any) -> None:
        found: EmulatedGraph = self._machine.handles.drop("CUgraph", graph)
        for number in found.nodes:
            self._machine.handles.drop("CUgraphNode", ffi.cast("CUgraphNode", number))

    def _launch(self, params: Any) -> EmulatedLaunch:
        p = params[0]
        return self._programs.launch(p.function, geometry_of(p), p.parameters, p.extra)


def _in_order(nodes: dict[int, Node]) -> list[EmulatedLaunch]:
    """Return the launches in the order that the dependencies allow and that is farthest from the order of addition."""
    waiting, done, launches = dict(nodes), set[int](), []
    while waiting:
        number = next(n for n in reversed(waiting) if done.issuperset(waiting[n].after))
        launches.append(waiting.pop(number).launch)
        done.add(number)
    return launches
