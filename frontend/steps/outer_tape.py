"""Nodes older than a recording: they are not part of the step, and each run propagates gradients to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polyhal.hal.compile.capture.fake_buffer import FAKE_HANDLE, FakeBuffer
from polyhal.hal.core import dispatch
from polyhal.hal.layout import Ref, Spec
from polyhal.tape.rebase import TapePlace
from polyhal.tape.tape import Edge, GradNode, edge_of
from polyhal.tensor import Tensor


class OuterTape:
    """Separates the nodes of a recording from older ones, and lists the leaves of the recorded tape.

    A result of an older node is replaced by a placeholder, which is a leaf of the recorded tape. `receiver` returns the
    tensor to which each run propagates the gradient.
    """

    def __init__(self, start: int, places: Iterable[TapePlace]) -> None:
        """`start` is the position on the tape, and `places` the states of tensors, before the recording."""
        self._start = start
        self._tensors = {(id(p.node), p.index): p.tensor for p in places if p.node is not None and p.node.order < start}
        self._stand_ins: dict[tuple[int, int], Tensor] = {}
        self._receivers: dict[int, Tensor] = {}

    def nodes_of(self, outputs: Sequence[Tensor]) -> list[GradNode]:
        """Return the recorded nodes that tensors depend on."""
        pending = [node for x in outputs if (node := self._recorded(edge_of(x))) is not None]
        seen = dict.fromkeys(pending)
        while pending:
            for parent in pending.pop().parents:
                node = self._recorded(parent)
                if node is not None and node not in seen:
                    seen[node] = None
                    pending.append(node)
        return list(seen)

    def is_freed(self, x: Tensor) -> bool:
        """Return whether a backward pass within the recording has freed a node that a tensor depends on."""
        return any(node.freed for node in self.nodes_of([x]))

    def leaves_of(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the leaves that tensors depend on."""
        leaves: dict[int, Tensor] = {}
        for node in self.nodes_of(outputs):
            node.parents = [self._leaf(edge, node) for edge in node.parents]
            leaves.update((id(x), x) for x in node.parents if isinstance(x, Tensor))
        return list(leaves.values())

    def receiver(self, leaf: Tensor) -> Tensor:
        """Return the tensor that receives the gradient of a leaf."""
        return self._receivers.get(id(leaf), leaf)

    def _recorded(self, edge: Edge | None) -> GradNode | None:
        """Return the recorded node of an edge; None for older nodes and leaves."""
        return edge[0] if isinstance(edge, tuple) and edge[0].order > self._start else None

    def _leaf(self, edge: Edge | None, user: GradNode) -> Edge | None:
        """Return a placeholder for the result of an older node, and other edges unchanged."""
        if not isinstance(edge, tuple) or self._recorded(edge) is not None:
            return edge
        node, output = edge
        key = (id(node), output)
        if key not in self._stand_ins:
            stand_in = _tensor_of(node.outputs[output], user)
            stand_in.requires_grad = True
            receiver = self._tensors.get(key)
            if receiver is None:
                receiver = _tensor_of(node.outputs[output], user)
                receiver.node, receiver.index, receiver.requires_grad = node, output, True
            self._stand_ins[key] = stand_in
            self._receivers[id(stand_in)] = receiver
        return self._stand_ins[key]


def _tensor_of(spec: Spec, node: GradNode) -> Tensor:
    made: Tensor = dispatch.frontend.wrap(node.device, FakeBuffer(spec.nbytes), Ref(FAKE_HANDLE, spec, 0))
    return made
