"""Builds graphs from untrusted descriptions: files and text. Every node is checked against the rules of its op."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.ir.graph import Graph, NodeOrigin, Operand, Value, infer_results
from polyhal.hal.compile.op_plugins import declared
from polyhal.hal.core import dispatch
from polyhal.hal.errors import CorruptFileError, message
from polyhal.hal.layout import Spec
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.protocol import InputSpec

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params


class GraphBuilder:
    """A graph that grows node by node. Raises CorruptFileError, naming the node or line, for whatever breaks a rule."""

    def __init__(self, source: str) -> None:
        self._source = source
        """The source of the description, for messages."""
        self.graph = Graph()

    def fail(self, where: str, problem: object, *, expected: str = "") -> CorruptFileError:
        """The error for a part of the description."""
        return CorruptFileError(message("graph", f"{where} of {self._source}: {problem}", expected=expected))

    @contextmanager
    def reading(self, where: str) -> Iterator[None]:
        """Report any error of the block as one of this part of the description."""
        try:
            yield
        except CorruptFileError:
            raise
        # The rules of ops rely on guarantees of calls from Python; a file guarantees nothing.
        except Exception as error:
            raise self.fail(where, f"{type(error).__name__}: {error}") from error

    def input(self, spec: InputSpec | None, name: str = "") -> int:
        """Add an input, before all nodes. Returns its value."""
        value = self.graph.add_input(spec)
        if name:
            self.graph.names[value] = name
        return value

    def node(
        self,
        where: str,
        op: str,
        operands: Sequence[Operand],
        params: Params,
        results: Sequence[Spec],
        origin: NodeOrigin | None,
        replaces: tuple[int, ...],
    ) -> tuple[int, ...]:
        """Add a node that the description says has these `results`. Returns its outputs."""
        with self.reading(where):
            definition = declared(op)
        if definition is None:
            raise self.fail(
                where, f"there is no op {op!r}", expected="an op that this version or an installed package declares"
            )
        self._check(where, definition, operands, params, replaces)
        with self.reading(where):
            bound = definition.bind(dispatch.freeze(tuple(params[name] for name in definition.schema.params)))
            specs = tuple(self.graph.spec_of(x) for x in operands)
            inferred, _ = infer_results(definition, specs, bound, None if origin is None else origin.device.stand_ins)
        if len(inferred) != len(results) or any(a[:3] != b[:3] for a, b in zip(inferred, results, strict=True)):
            actual, described = (", ".join(map(str, s)) for s in (inferred, results))
            raise self.fail(where, f"{op} gives {actual}", expected=described)
        if replaces and len(replaces) != len(inferred):
            raise self.fail(where, f"{len(replaces)} results are made over operands", expected=f"{len(inferred)}")
        return self.graph.add(definition, tuple(operands), tuple(bound.values()), results, origin, replaces)

    def outputs(self, values: Sequence[int]) -> None:
        """Set the values that the graph returns."""
        for v in values:
            self._check_value("the results", v)
        self.graph.outputs = tuple(values)

    def update(self, target: int, value: int) -> None:
        """Let a value replace an input."""
        where = f"the update of %{target}"
        self._check_value(where, value)
        if not 0 <= target < self.graph.inputs or target in self.graph.updates:
            raise self.fail(
                where, "it is no input", expected=f"each input from %0 to %{self.graph.inputs - 1} at most once"
            )
        old, new = self.graph.specs[target], self.graph.specs[value]
        if not isinstance(old, Spec) or not isinstance(new, Spec) or old[:2] != new[:2]:
            raise self.fail(where, f"%{value} is {new}", expected=str(old))
        self.graph.updates[target] = value

    def _check(
        self, where: str, op: OpDef, operands: Sequence[Operand], params: Mapping[str, Any], replaces: tuple[int, ...]
    ) -> None:
        if set(params) != set(op.schema.params):
            raise self.fail(
                where, f"{op.name} with parameters {sorted(params)}", expected=f"{sorted(op.schema.params)}"
            )
        if not op.schema.variadic and len(operands) != len(op.schema.inputs):
            raise self.fail(where, f"{op.name} of {len(operands)} operands", expected=f"{', '.join(op.schema.inputs)}")
        for i, x in enumerate(operands):
            if isinstance(x, Value):
                self._check_value(where, x.index)
            elif x is None and not op.schema.variadic and op.schema.inputs[i] not in op.schema.optional:
                raise self.fail(where, f"operand {op.schema.inputs[i]} of {op.name} is left out", expected="a value")
        if any(not -1 <= i < len(operands) for i in replaces):
            raise self.fail(where, f"results over operands {list(replaces)}", expected="operands of the node")

    def _check_value(self, where: str, value: int) -> None:
        if not 0 <= value < len(self.graph.specs):
            raise self.fail(where, f"%{value} is not made before it is used")
