"""Values that Python reads while a step is recorded, and that each run compares with the recorded ones.

The value of the call that is recorded is computed from its ancestors: the recorded ops that it depends on run one by one, on
the real inputs, without writing to any of them. The comparison is a part of the graph: `flag` is True if all values are as
they were recorded. A run reads it before the first write to memory of the program, see `hal.compile.scheduler.value_check`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal.compile.capture.op_by_op import applied, input_array
from polyhal.hal.compile.ir.graph import Node, Operand, Value
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import Array, Executor
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.ops.traits import Trait

if TYPE_CHECKING:
    from polyhal.hal.compile.capture.incremental_graph import IncrementalGraph
    from polyhal.hal.device import Device


class CheckedReads:
    """Checks of one recording."""

    def __init__(self, graph: IncrementalGraph) -> None:
        self._graph = graph
        self._values: dict[int, Any] = {}
        """Arrays of values that were computed for earlier reads."""
        self.flag: int | None = None
        """Value that is True if all values so far are as recorded; None before the first read."""
        self._device: Device | None = None

    def may_check(self, device: Device) -> bool:
        """Return whether a value on a device can be checked: all values of a step are checked on one device."""
        return self._device is None or self._device is device

    def known(
        self, value: int, executor: Executor, inputs: Sequence[Array], kept: Callable[[], set[int]]
    ) -> np.ndarray | None:
        """Return the elements of a value in this call; None if another device takes part.

        Ops run by `executor` on `inputs`, the arrays of the step inputs. Of the values computed on the way, those in `kept()`
        stay for later reads.
        """
        missing = self._missing(value)
        if any(Trait.CROSS_DEVICE in node.op.traits for node in missing):
            return None
        with dispatch.executing(executor):
            for node in missing:
                operands = tuple(self._operand(x, inputs) for x in node.inputs)
                self._values.update(zip(node.outputs, applied(node, operands), strict=True))
            array = self._operand(Value(value), inputs)
            elements: np.ndarray = array.device.download(array.ref)
        needed = kept()
        self._values = {v: x for v, x in self._values.items() if v in needed}
        return elements

    def expect(self, value: int, elements: np.ndarray, device: Device) -> None:
        """Compare the only element of a value with `elements` in each run."""
        self._device = device
        number = elements.reshape(()).item()
        if self._graph.spec(value).shape:
            value = self._node("reshape", (Value(value),), ((),), device)
        if not isinstance(number, bool):
            same = "equal" if number == number else "not_equal"
            value = self._node(same, (Value(value), number if number == number else Value(value)), (), device)
        elif not number:
            value = self._node("logical_not", (Value(value),), (), device)
        known = self.flag
        self.flag = value if known is None else self._node("logical_and", (Value(known), Value(value)), (), device)

    def _missing(self, value: int) -> list[Node]:
        """Return the nodes that have to run for a value, in order."""
        producers = {v: k for k, node in enumerate(self._graph.nodes) for v in node.outputs}
        found: set[int] = set()
        pending = [value]
        while pending:
            v = pending.pop()
            k = producers.get(v)
            if k is not None and v not in self._values and k not in found:
                found.add(k)
                pending += self._graph.nodes[k].reads
        return [self._graph.nodes[k] for k in sorted(found)]

    def _operand(self, x: Operand, inputs: Sequence[Array]) -> Any:
        if not isinstance(x, Value):
            return x
        source = self._graph.sources.get(x.index)
        return self._values[x.index] if source is None else input_array(source, inputs)

    def _node(self, name: str, operands: tuple[Operand, ...], params: tuple[Any, ...], device: Device) -> int:
        (made,), _ = self._graph.add_node(OPS[name], operands, params, device)
        return made
