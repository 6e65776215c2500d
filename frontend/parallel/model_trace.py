"""A recorded forward and backward pass of a model, divided into parts at possible cuts, with the costs and memory of each.

The passes are recorded, not run. A part begins at the first op of a module that was not entered before, and ends at the next
such op. Stages are sequences of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from polyhal import functions as ops
from polyhal.hal.compile.capture.result import CapturedGraph
from polyhal.hal.compile.ir.graph import CapturedConstant, Graph, Node
from polyhal.hal.compile.recording import Recording
from polyhal.hal.core.memory.pool import bucket
from polyhal.hal.layout import Spec
from polyhal.hal.ops.traits import Trait
from polyhal.nn.module import Module
from polyhal.steps.tree import map_tree
from polyhal.tape.modes import enable_grad
from polyhal.tensor import Tensor


class OpCost(NamedTuple):
    """Cost of one op."""

    part: int
    flops: int
    nbytes: int
    """Bytes read and written."""


class _Held(NamedTuple):
    """A value that a node allocates, with its producer and consumers. Parameters and inputs are not included."""

    nbytes: int
    made: int
    """Position of the producer."""
    part: int
    uses: list[tuple[int, int]]
    """Positions of the consumers, and their parts."""


class ModelTrace:
    """The recorded passes of one micro-batch."""

    def __init__(self, model: Module, inputs: Any, loss: Callable[[Any], Tensor] | None) -> None:
        """Record the passes. `inputs` are positional and keyword arguments for a micro-batch.

        `loss` computes the loss from the outputs; with None it is the sum of their elements.
        """
        captured = _record(model, inputs, loss)
        self._graph: Graph = captured.graph
        nodes = self._graph.nodes
        self.backward_from = next((k for k, n in enumerate(nodes) if n.place.location.gradient_of), len(nodes))
        """Position of the first node of the backward pass."""
        starts = _starts(nodes[: self.backward_from], [name for name, _ in model.named_modules() if name])
        self.names = [name for _, name in starts]
        """Modules at which parts begin, "" for the first."""
        self.parts = self._parts([k for k, _ in starts])
        """Part of each node."""
        self.costs = [c for c in map(self._cost, range(len(nodes))) if c is not None]
        self._read_state(model, captured)
        self._held = self._values()

    @property
    def count(self) -> int:
        """Number of parts."""
        return len(self.names)

    # --- requirements of stages -----------------------------------------------------------------------------------------

    def crossing(self) -> np.ndarray:
        """Return the bytes that cross a cut before each part in the forward pass.

        A value crosses every cut between its producer and its last consumer: stages relay it.
        """
        total = np.zeros(self.count + 1, np.int64)
        for value in self._held:
            last = max((part for k, part in value.uses if k < self.backward_from), default=value.part)
            if value.made < self.backward_from and last > value.part:
                total[value.part + 1 : last + 1] += value.nbytes
        return total

    def memory(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the memory of a micro-batch in all stages: [i, j] is the stage of parts i to j - 1.

        The first array contains the bytes kept between the two passes, the second the bytes at the peak.
        """
        parts, nodes, first_back = self.count, len(self._graph.nodes), self.backward_from
        sizes = np.array([v.nbytes for v in self._held], np.int64)
        made = np.array([v.made for v in self._held], np.int64)
        own = np.array([v.part for v in self._held], np.int64)
        latest = np.full((len(sizes), parts), -1, np.int64)
        earliest = np.full((len(sizes), parts), nodes, np.int64)
        for row, value in enumerate(self._held):
            for k, part in value.uses:
                latest[row, part] = max(latest[row, part], k)
                earliest[row, part] = min(earliest[row, part], k)
        kept = np.zeros((parts + 1, parts + 1), np.int64)
        peak = np.zeros((parts + 1, parts + 1), np.int64)
        for i in range(parts):
            last, first = np.full(len(sizes), -1, np.int64), np.full(len(sizes), nodes, np.int64)
            for j in range(i + 1, parts + 1):
                last, first = np.maximum(last, latest[:, j - 1]), np.minimum(first, earliest[:, j - 1])
                inside = (own >= i) & (own < j)
                here = inside | (last >= 0)
                begin = np.where(inside, made, first)
                end = np.where(inside, np.maximum(last, made), last)
                change = np.zeros(nodes + 2, np.int64)
                np.add.at(change, begin[here], sizes[here])
                np.add.at(change, end[here] + 1, -sizes[here])
                kept[i, j] = sizes[here & (begin < first_back) & (end >= first_back)].sum()
                peak[i, j] = max(int(np.cumsum(change).max(initial=0)), kept[i, j])
        return kept, peak

    # --- reading the recording --------------------------------------------------------------------------------------

    def _parts(self, starts: Sequence[int]) -> list[int]:
        """Return the part of each node.

        The backward pass visits parts in reverse: an op belongs to the latest part with ops of its module that is not later
        than the part of the previous op.
        """
        nodes = self._graph.nodes
        forward = np.searchsorted(np.array(starts), np.arange(self.backward_from), side="right") - 1
        of_path: dict[str, set[int]] = {}
        for node, part in zip(nodes, forward, strict=False):
            of_path.setdefault(node.place.module, set()).add(int(part))
        parts = [int(p) for p in forward]
        running = len(starts) - 1
        for node in nodes[self.backward_from :]:
            possible = of_path.get(node.place.module, {running})
            running = max((p for p in possible if p <= running), default=min(possible))
            parts.append(running)
        return parts

    def _cost(self, k: int) -> OpCost | None:
        graph, node = self._graph, self._graph.nodes[k]
        if graph.is_view(node):
            return None
        inputs = tuple(graph.spec_of(x) for x in node.inputs)
        outputs = graph.output_specs(node)
        tensors = [s for s in (*inputs, *outputs) if isinstance(s, Spec)]
        if node.op.flops is not None and any(isinstance(s, Spec) for s in inputs):
            flops = int(node.op.flops(inputs, outputs, node.bound))
        else:
            flops = max((s.size for s in tensors), default=0)
        nbytes = sum(s.nbytes for s in tensors)
        if node.op.family == "indexing":  # a lookup reads the indexed rows, about as many bytes as it writes
            nbytes = min(nbytes, 4 * max((s.nbytes for s in outputs), default=0))
        return OpCost(self.parts[k], flops, nbytes)

    def _read_state(self, model: Module, captured: CapturedGraph) -> None:
        """Record the parts that read each parameter and buffer."""
        graph = self._graph
        read: dict[int, set[int]] = {}
        for i, source in enumerate(captured.sources):
            if isinstance(source, CapturedConstant):
                read.setdefault(id(source.buffer), set()).update(self._readers(graph, i))
        self.readers: dict[str, list[int]] = {}
        """Parts that read each parameter and buffer, by name."""
        self.state_bytes: dict[str, int] = {}
        self.trainable: dict[str, bool] = {}
        for name, x in (*model.named_parameters(), *model.named_buffers()):
            self.readers[name] = sorted(read.get(id(x.buffer), ()))
            self.state_bytes[name] = bucket(x.buffer.nbytes)
            self.trainable[name] = x.requires_grad

    def _readers(self, graph: Graph, value: int) -> set[int]:
        """Return the parts that read a value in the forward pass, directly or through views."""
        found: set[int] = set()
        for k in graph.user_indices(value):
            if k < self.backward_from:
                found.add(self.parts[k])
        return found

    def _values(self) -> list[_Held]:
        """Return the values that occupy memory, with the consumers of their views."""
        graph = self._graph
        held: dict[int, _Held] = {}
        for k, node in enumerate(graph.nodes):
            for v in node.reads:
                root = graph.root(v)
                if root in held and not graph.is_view(node):
                    held[root].uses.append((k, self.parts[k]))
            replaced = any(p >= 0 for p in node.replaces)
            if graph.is_view(node) or replaced:
                continue
            for v in node.outputs:
                if graph.is_tensor(v):
                    held[v] = _Held(bucket(graph.tensor(v).nbytes), k, self.parts[k], [])
        leaves = {graph.root(v) for v in graph.outputs[1:]}  # gradients of parameters, which are counted separately
        for v in leaves & held.keys():
            held[v].uses.append((held[v].made, held[v].part))
        return list(held.values())


def _record(model: Module, inputs: Any, loss: Callable[[Any], Tensor] | None) -> CapturedGraph:
    """Record both passes without running them. The model's gradients are restored."""
    arguments, keywords = inputs
    recording = Recording()
    gradients = [(p, p.stored_grad) for p in model.parameters()]
    try:
        for p, _ in gradients:
            p.stored_grad = None
        with recording, enable_grad():
            outputs = model(*arguments, **keywords)
            result = _sum(outputs) if loss is None else loss(outputs)
            result.backward()
            recording.results([result])
            del outputs, result
        return recording.finish()
    finally:
        recording.abandon()
        for p, g in gradients:
            p.stored_grad = g


def _sum(outputs: Tensor) -> Tensor:
    """Return the sum of all results that have gradients."""
    total: list[Tensor] = []

    def add(x: Tensor) -> Any:
        if isinstance(x, Tensor) and x.requires_grad:
            total.append(ops.sum(x) if not total else total.pop() + ops.sum(x))
        return x

    map_tree(outputs, add)
    return total[0]


def _starts(nodes: Sequence[Node], modules: Sequence[str]) -> list[tuple[int, str]]:
    """Return the positions at which modules are entered for the first time, each with the outermost of them; (0, "") first."""
    known = set(modules)
    entered: set[str] = set()
    starts = [(0, "")]
    for k, node in enumerate(nodes):
        path = node.place.module
        names = [path[:i] for i, c in enumerate(path + ".") if c == "."]
        new = [n for n in names if n in known and n not in entered]
        entered.update(names)
        if new and k and Trait.CREATION not in node.op.traits:
            starts.append((k, new[0]))
    return starts


__all__ = ["ModelTrace", "OpCost"]
