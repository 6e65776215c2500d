"""Building graphs from descriptions that nobody vouches for: every node is held to its op's own rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from polyhal.hal import dispatch
from polyhal.hal.errors import CorruptFileError, message
from polyhal.hal.ir.graph import Graph, Operand, Origin
from polyhal.hal.layout import Spec, contiguous, place
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef, Value
from polyhal.hal.protocol import InputSpec


class Assembling:
    """A graph that grows node by node. What does not hold raises CorruptFileError, which names the node or line."""

    def __init__(self, what: str) -> None:
        self._what = what
        """What the description is, for messages."""
        self.graph = Graph()

    def fail(self, where: str, problem: object, *, expected: str = "") -> CorruptFileError:
        """The error for a part of the description."""
        return CorruptFileError(message("graph", f"{where} of {self._what}: {problem}", expected=expected))

    @contextmanager
    def reading(self, where: str) -> Iterator[None]:
        """Have whatever goes wrong in the block be told of this part."""
        try:
            yield
        except CorruptFileError:
            raise
        # Rules of ops take for granted what a call from Python gives; here they meet anything.
        except Exception as error:
            raise self.fail(where, f"{type(error).__name__}: {error}") from error

    def input(self, spec: InputSpec | None, name: str = "") -> int:
        """Add an input, before all nodes. Returns its number."""
        number = len(self.graph.specs)
        self.graph.specs.append(spec)
        self.graph.inputs = number + 1
        if name:
            self.graph.names[number] = name
        return number

    def node(
        self,
        where: str,
        op: str,
        operands: Sequence[Operand],
        params: Mapping[str, Any],
        results: Sequence[Spec],
        origin: Origin | None,
        replaces: tuple[int, ...],
    ) -> tuple[int, ...]:
        """Add a node whose results are said to be `results`. Returns their numbers."""
        if op not in OPS:
            raise self.fail(where, f"there is no op {op!r}", expected="an op that this version declares")
        definition = OPS[op]
        self._check(where, definition, operands, params, replaces)
        with self.reading(where):
            bound = definition.bind(dispatch.freeze(tuple(params[name] for name in definition.params)))
            made = self._inferred(definition, operands, bound)
        if len(made) != len(results) or any(a[:3] != b[:3] for a, b in zip(made, results, strict=True)):
            found, told = (", ".join(map(str, s)) for s in (made, results))
            raise self.fail(where, f"{op} gives {found}", expected=told)
        if replaces and len(replaces) != len(made):
            raise self.fail(where, f"{len(replaces)} results are made over operands", expected=f"{len(made)}")
        return self.graph.add(definition, tuple(operands), tuple(bound.values()), results, origin, replaces)

    def outputs(self, values: Sequence[int]) -> None:
        """Say which values the graph returns."""
        for v in values:
            self._value("the results", v)
        self.graph.outputs = tuple(values)

    def update(self, target: int, value: int) -> None:
        """Say that a value replaces an input."""
        where = f"the update of %{target}"
        self._value(where, value)
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
        if set(params) != set(op.params):
            raise self.fail(where, f"{op.name} with parameters {sorted(params)}", expected=f"{sorted(op.params)}")
        if not op.variadic and len(operands) != len(op.inputs):
            raise self.fail(where, f"{op.name} of {len(operands)} operands", expected=f"{', '.join(op.inputs)}")
        for i, x in enumerate(operands):
            if isinstance(x, Value):
                self._value(where, x.index)
            elif x is None and not op.variadic and op.inputs[i] not in op.optional:
                raise self.fail(where, f"operand {op.inputs[i]} of {op.name} is left out", expected="a value")
        if any(not -1 <= i < len(operands) for i in replaces):
            raise self.fail(where, f"results over operands {list(replaces)}", expected="operands of the node")

    def _value(self, where: str, number: int) -> None:
        if not 0 <= number < len(self.graph.specs):
            raise self.fail(where, f"%{number} is not made before it is used")

    def _inferred(self, op: OpDef, operands: Sequence[Operand], bound: dict[str, Any]) -> list[Spec]:
        specs = tuple(self.graph.spec_of(x) for x in operands)
        inferred = dispatch.infer(op, specs, bound)
        first = specs[0] if specs else None
        view = op.view(first, bound) if op.view is not None and isinstance(first, Spec) else None
        if view is not None:
            return [place(first, view)]  # type: ignore[arg-type]
        return [contiguous(dtype, shape) for dtype, shape in inferred]
