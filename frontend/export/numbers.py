"""The runtime scalars of recorded launches as numbers of a program."""

from __future__ import annotations

from typing import Any

from polyhal.export.operations import OPERATIONS, SYMBOLIC
from polyhal.export.program import (
    LiteralNumber,
    NamedNumber,
    NumberOperation,
    NumberReference,
    ProgramNumber,
    ProgramStream,
    StreamNumber,
)
from polyhal.hal.compile.capture.scopes import unique_name
from polyhal.hal.core.execution.runtime_scalars import (
    DerivedScalar,
    RandomScalar,
    RandomStream,
    RuntimeScalar,
    ScalarElement,
)


class NumberTable:
    """Collects numbers and streams. Operands precede their results."""

    def __init__(self) -> None:
        self.numbers: list[ProgramNumber] = []
        self.unknown: list[str] = []
        """Numbers that a Python function computes, by name."""
        self._streams: list[RandomStream] = []
        self._indices: dict[int, int] = {}
        self._kept: list[Any] = []
        """Keeps the identities in `_indices` and `_elements` taken."""
        self._elements: dict[int, tuple[Any, ...]] = {}
        self._names: set[str] = set()

    @property
    def streams(self) -> list[ProgramStream]:
        """The random streams, in their present states."""
        states = [(s.source.get_state(), s.blocks) for s in self._streams]
        return [ProgramStream(state["seed"], state["offset"], blocks) for state, blocks in states]

    def add(self, scalar: RuntimeScalar) -> int:
        """Return the index of a number."""
        if id(scalar) not in self._indices:
            if isinstance(scalar, ScalarElement) and isinstance(x := self._element(scalar), RuntimeScalar):
                return self.add(x)
            made = self._made(scalar)
            self._indices[id(scalar)] = len(self.numbers)
            self._kept.append(scalar)
            self.numbers.append(made)
        return self._indices[id(scalar)]

    def _made(self, scalar: RuntimeScalar) -> ProgramNumber:
        if isinstance(scalar, ScalarElement):
            return NumberOperation("pos", (LiteralNumber(self._element(scalar)),))
        if isinstance(scalar, RandomScalar):
            if scalar.stream not in self._streams:
                self._streams.append(scalar.stream)
            return StreamNumber(self._streams.index(scalar.stream), scalar.start)
        if isinstance(scalar, DerivedScalar):
            if scalar.operation in OPERATIONS:
                return NumberOperation(scalar.operation, tuple(self._operand(x) for x in scalar.operands))
            self.unknown.append(repr(scalar))
        name = unique_name(scalar.name or "number", self._names)
        self._names.add(name)
        return NamedNumber(name, scalar.compute(), scalar.increment)

    def _element(self, scalar: ScalarElement) -> Any:
        """Return a number of a shared derivation, computed by operations."""
        derivation = scalar.derivation
        if id(derivation) not in self._elements:
            self._kept.append(derivation)
            self._elements[id(derivation)] = tuple(derivation.function(*derivation.operands, functions=SYMBOLIC))
        return self._elements[id(derivation)][scalar.index]

    def _operand(self, x: Any) -> NumberReference | LiteralNumber:
        return NumberReference(self.add(x)) if isinstance(x, RuntimeScalar) else LiteralNumber(x)
