"""Traces the patterns that fused ops declare: each spelling of an op becomes a graph to match others against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.compile.ir.trace import trace
from polyhal.hal.compile.passes.fuse.expressions import Expressions, Wildcard, kind_of, root_kind
from polyhal.hal.layout import Spec, contiguous
from polyhal.hal.ops.fusion import AnyNumber, Pattern, Spelling
from polyhal.hal.ops.opdef import OPS, OpDef
from polyhal.hal.ops.schema import Params, Specs


@dataclass(frozen=True, slots=True, eq=False)
class TracedCall:
    """A spelling for one call of its op: a graph whose inputs are the op's, and the values that are the op's operands."""

    expressions: Expressions
    operands: tuple[int | None, ...]
    params: dict[str, Any]

    @property
    def results(self) -> tuple[int, ...]:
        """The values that are the op's results, or the first of them."""
        return self.expressions.graph.outputs

    @property
    def size(self) -> int:
        """The number of ops."""
        return len(self.expressions.graph.nodes)


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """One spelling of an op, with the same optional operands absent, for results of any shape."""

    op: OpDef
    pattern: Pattern
    spelling: Callable[..., Any]
    absent: tuple[bool, ...]
    example: TracedCall
    """The formula for a small result. All others have the same structure."""
    kinds: frozenset[str]
    """The kinds of its ops: a value that does not depend on all of them is no match."""
    root: str
    """The kind of its last op."""

    def calls(self, result: Spec) -> Iterator[TracedCall]:
        """The formula for the calls that may give a result of that spec."""
        for specs, params in self.pattern.calls(result):
            call = _traced(self.spelling, specs, params) if _absent(specs) == self.absent else None
            if call is not None:
                yield call


def formulas() -> list[Formula]:
    """The formulas of all declared ops, the largest first."""
    return _formulas(tuple(op for op in OPS if isinstance(op.fuses, Pattern)))


@lru_cache(maxsize=1)
def _formulas(ops: tuple[OpDef, ...]) -> list[Formula]:
    unique: dict[Any, Formula] = {}
    for op in ops:
        if not isinstance(op.fuses, Pattern):
            continue
        for specs, params in op.fuses.calls(contiguous(dtypes.float32, op.fuses.example)):
            for spelling in (op.decompose, *op.spellings):
                call = None if spelling is None else _traced(spelling, specs, params)
                if spelling is not None and call is not None:
                    nodes = call.expressions.graph.nodes
                    kinds = frozenset(k for n in nodes if (k := kind_of(n)))
                    last = call.expressions.graph.producer(call.results[0])
                    root = "" if last is None else root_kind(last)
                    # Calls that differ only in their axes have one structure.
                    key = (spelling, tuple((n.op, n.inputs) for n in nodes))
                    unique.setdefault(key, Formula(op, op.fuses, spelling, _absent(specs), call, kinds, root))
    return sorted(unique.values(), key=lambda f: -f.example.size)


def _absent(specs: Specs) -> tuple[bool, ...]:
    return tuple(s is None for s in specs)


def _traced(spelling: Callable[..., Any], specs: Specs, params: Params) -> TracedCall | None:
    """The graph of a spelling; None if it does not apply to the call."""
    operands: list[Any] = []

    def run(*symbols: Any, **bound: Any) -> tuple[Any, ...]:
        result = spelling(*symbols, **bound)
        operands.extend(result.operands if isinstance(result, Spelling) else symbols)
        if isinstance(result, Spelling):
            return tuple(result.results)
        return () if result is None else result if isinstance(result, tuple) else (result,)

    bound = {name: Wildcard(name) if isinstance(value, AnyNumber) else value for name, value in params.items()}
    graph = trace(run, specs, bound)
    if not graph.outputs:
        return None
    return TracedCall(Expressions(graph, graph.outputs), tuple(None if x is None else x.index for x in operands), bound)
