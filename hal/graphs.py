"""Optional protocol of devices whose runtime compiles graphs: XLA, OpenVINO, Core ML, IREE and others.

A captured step is then one program, or a few, instead of a launch per op. The graph that a backend receives is plain data of
the contract, so that a backend needs no module of the compiler, and the compiler's own graph stays free to change::

    def evaluate(graph, arrays):
        values = dict(zip(graph.inputs, arrays))
        for node in graph.nodes:
            operands = [values[x] if isinstance(x, GraphValue) else x for x in node.operands]
            values.update(zip(node.results, FUNCTIONS[node.op](*operands, **node.params)))
        return [values[v] for v in graph.outputs]

Every value is computed once and never changes. An update in place is an output that may be stored in the memory of an input
(`GraphProgram.donated`), and a view is a node like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from polyhal.hal.layout import ScalarSpec, Spec

if TYPE_CHECKING:
    from polyhal.hal.protocol import Declined, InputSpec, Launch, Number


class GraphValue(NamedTuple):
    """A value of a graph: its number, which no other value of the graph has, and its spec.

    A `ScalarSpec` is an input that arrives as a Python number and may differ from run to run: a learning rate, a step count,
    the seed or offset of a random stream. Strides are the tensor's if views took no copy; programs may ignore them.
    """

    number: int
    spec: Spec | ScalarSpec


class GraphNode(NamedTuple):
    """One op of a graph. `op` and `params` are as for `SupportsLowering.lower`."""

    op: str
    operands: tuple[GraphValue | Number | None, ...]
    """Values, Python numbers that are part of the program, and None for absent optional inputs."""
    params: Mapping[str, Any]
    results: tuple[GraphValue, ...]


class GraphProgram(NamedTuple):
    """A graph to compile: a whole captured step, or a part of one."""

    inputs: tuple[GraphValue, ...]
    """Contiguous tensors, and numbers."""
    nodes: tuple[GraphNode, ...]
    """In an order in which every value precedes its uses."""
    outputs: tuple[GraphValue, ...]
    """Results that are used after the program, all different and contiguous; none is a view or an input."""
    donated: tuple[int | None, ...] = ()
    """For each output, the position of the input that it replaces in the same memory; None for an output in other memory.

    No one reads a donated input after the program, and no other operand of the launch overlaps it.
    """
    captured: frozenset[int] = frozenset()
    """Positions of inputs that are in the same memory in all runs and that no run changes: weights, statistics, constants.

    A runtime may compile with their elements as constants if it notices when other code changes them between two runs.
    """


@runtime_checkable
class SupportsGraphs(Protocol):
    """Programs compiled from graphs of ops.

    When a captured step is planned, each of its ops is offered by `claim_op`, after simplification and before ops are fused. An
    op that is not claimed is replaced by its decomposition if all ops of that are claimed. The claimed ops form as few programs
    as possible, each compiled once; the other ops run between them as in eager mode, in the same memory.
    """

    def claim_op(
        self, op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Declined | None:
        """Return None if a program may contain the op with these specs and parameters, else the reason why not.

        Views are offered like other ops. `explain` shows the reasons.
        """

    def compile_graph(self, graph: GraphProgram) -> Launch | Declined:
        """Compile a graph of claimed ops.

        The launch is called in each run with the inputs, then the outputs, then the workspace handles, as for `lower`. A
        donated input and its output are references to the same memory; all others do not overlap. If the graph is declined, for
        example because it needs more memory than the device has, all ops of the step run one by one. Raises OutOfMemoryError,
        which declines the graph, too.
        """
