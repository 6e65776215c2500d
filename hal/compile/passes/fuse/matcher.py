"""Matches a pattern, which is a traced graph, against a value of another graph.

Two values match if they are the same function of their index: up to the order and grouping of sums and products, the spelling
of quotients, roots, powers and means, views that insert or repeat axes, and constants within rounding.
"""

from __future__ import annotations

import math
from typing import Any

from polyhal.hal.compile.ir.graph import Node, Operand, Value
from polyhal.hal.compile.passes.fuse.expressions import (
    Expressions,
    Factor,
    SumReading,
    Term,
    Wildcard,
    is_reduction,
    kind_of,
)
from polyhal.hal.layout import Spec
from polyhal.hal.ops.traits import Trait

_CLOSE = 2e-7
"""Relative difference of constants: 0.7978845608 matches the root of 2/pi, 0.798 does not."""


class Matcher:
    """One attempt to match. The inputs of the pattern's graph are its variables.

    With `exact`, shapes, axes, constants and parameters must agree. Without, only the structure does: one pattern then
    represents all shapes, and decides quickly which of them are worth tracing.
    """

    def __init__(self, pattern: Expressions, subject: Expressions, *, exact: bool) -> None:
        self._pattern = pattern
        self._subject = subject
        self._exact = exact
        self.values: dict[int, int] = {}
        """Values of the subject by the values of the pattern that they match."""
        self.numbers: dict[str, float] = {}
        """The numbers that wildcards matched."""

    def matches(self, pattern: int, subject: int) -> bool:
        """Return whether two values match; `values` and `numbers` then say how."""
        return self._match(self._pattern.whole(pattern), self._subject.whole(subject))

    # --- kinds of terms ---------------------------------------------------------------------------------------------

    def _match(self, p: Term, s: Term, sign: float = 1.0) -> bool:
        """Return whether `p` is `s` times `sign`."""
        return self._match_term(p, s) if sign == 1.0 else self._match_product(p, s, sign)

    def _match_term(self, p: Term, s: Term) -> bool:
        if self._is_variable(p):
            return self._match_variable(p, s)
        if self._pattern.is_product(p):
            matched = self._match_product(p, s, 1.0)
        elif self._pattern.is_sum(p):
            matched = self._match_sum(p, s)
        else:
            matched = self._match_node(p, s)
        if matched:
            self._note(p, s)
        return matched

    def _match_variable(self, p: Term, s: Term) -> bool:
        """Bind a variable to a tensor, or compare with the tensor that it is bound to."""
        p = self._pattern.strip(p)
        spec = self._pattern.graph.specs[p.value]
        term: Term | None = s
        while term is not None:
            same_axes = not self._exact or p.axes == term.axes
            if p.value in self.values:
                if self.values[p.value] == term.value and same_axes:
                    return True
            elif same_axes and self._may_stand_for(spec, term):
                self.values[p.value] = term.value
                return True
            term = self._subject.through_view(term)
        return False

    def _may_stand_for(self, spec: Any, term: Term) -> bool:
        found = self._subject.graph.specs[term.value]
        if not isinstance(found, Spec):
            return False
        return not self._exact or found[:2] == spec[:2]

    def _match_product(self, p: Term, s: Term, sign: float) -> bool:
        pattern = next(self._pattern.products(p))
        for product in self._subject.products(s):
            if len(product.factors) != len(pattern.factors):
                continue
            if self._exact and not close(product.scale * sign, pattern.scale):
                continue
            if self._assign_factors(sorted(pattern.factors, key=lambda f: self._rank(f.term)), product.factors):
                return True
        return False

    def _match_sum(self, p: Term, s: Term) -> bool:
        pattern = next(self._pattern.sums(p))
        terms = sorted(pattern.terms, key=lambda pair: self._rank(pair[1]))
        for total in self._subject.sums(s):
            if len(total.terms) != len(terms):
                continue
            saved = self._save()
            if self._match_constant(pattern, total) and self._assign_terms(terms, total.terms):
                return True
            self._restore(saved)
        return False

    def _match_constant(self, pattern: SumReading, total: SumReading) -> bool:
        rest = total.constant - pattern.constant
        if pattern.wildcard is not None:
            return rest != 0 and self._match_number(pattern.wildcard, rest)
        if self._exact:
            return abs(rest) <= _CLOSE * abs(pattern.constant)
        return (total.constant == 0) == (pattern.constant == 0)

    def _match_node(self, p: Term, s: Term) -> bool:
        """Match the nodes behind two terms: the same op on matching operands."""
        p, s = self._pattern.strip(p), self._subject.strip(s)
        a, b = self._pattern.node(p), self._subject.node(s)
        if a is None or b is None or a.op is not b.op:
            return False
        if is_reduction(a):
            return self._match_reduction(p, s)
        if Trait.POINTWISE in a.op.traits:
            return self._match_pointwise(a, b, p, s)
        same_result = a.outputs.index(p.value) == b.outputs.index(s.value)
        if not same_result or not self._match_params(a, b) or (self._exact and not self._same_shape(p, s)):
            return False
        operands = zip(_own_terms(self._pattern, a), _own_terms(self._subject, b), strict=True)
        return all(self._match_operand(x, y) for x, y in operands)

    def _match_pointwise(self, a: Node, b: Node, p: Term, s: Term) -> bool:
        if not self._match_params(a, b) or [x is None for x in a.inputs] != [x is None for x in b.inputs]:
            return False
        xs, ys = self._pattern.operands(p, a), self._subject.operands(s, b)
        orders = [ys, ys[::-1]] if Trait.COMMUTATIVE in a.op.traits else [ys]
        for order in orders:
            saved = self._save()
            if all(self._match_operand(x, y) for x, y in zip(xs, order, strict=True)):
                return True
            self._restore(saved)
        return False

    def _match_reduction(self, p: Term, s: Term) -> bool:
        """Match two reductions of one kind. A mean is matched as its sum: its product reading has the factor."""
        p, s = self._pattern.strip(p), self._subject.strip(s)
        a, b = self._pattern.node(p), self._subject.node(s)
        if a is None or b is None or not is_reduction(a) or kind_of(a) != kind_of(b):
            return False
        x, y = self._pattern.whole(a.value(0)), self._subject.whole(b.value(0))
        if self._exact:
            same_axes = self._pattern.reduced_axes(a) == self._subject.reduced_axes(b) and p.axes == s.axes
            if not same_axes or not self._same_shape(x, y) or _other_params(a) != _other_params(b):
                return False
        return self._match(x, y)

    def _same_shape(self, p: Term, s: Term) -> bool:
        a, b = self._pattern.graph.specs[p.value], self._subject.graph.specs[s.value]
        return a is not None and b is not None and a.shape == b.shape and p.axes == s.axes

    # --- operands and numbers ---------------------------------------------------------------------------------------

    def _match_operand(self, x: Any, y: Any) -> bool:
        if isinstance(x, Term) and isinstance(y, Term):
            return self._match(x, y)
        if isinstance(x, Term) or isinstance(y, Term) or x is None or y is None:
            return x is None and y is None
        return self._match_number(x, y)

    def _match_params(self, a: Node, b: Node) -> bool:
        pairs = zip(a.params, b.params, strict=True)
        return all(self._match_number(x, y) if isinstance(x, Wildcard) else not self._exact or x == y for x, y in pairs)

    def _match_number(self, pattern: float, number: float) -> bool:
        if isinstance(pattern, Wildcard):
            return close(self.numbers.setdefault(pattern.name, number), number)
        return not self._exact or close(number, pattern)

    # --- assignments ------------------------------------------------------------------------------------------------

    def _assign_factors(self, pattern: list[Factor], found: list[Factor]) -> bool:
        """Return whether the factors match in some order."""
        if not pattern:
            return True
        first, *rest = pattern
        for i, factor in enumerate(found):
            saved = self._save()
            if self._match_factor(first, factor) and self._assign_factors(rest, found[:i] + found[i + 1 :]):
                return True
            self._restore(saved)
        return False

    def _match_factor(self, p: Factor, s: Factor) -> bool:
        if p.exponent != s.exponent:
            return False
        if p.summed or s.summed:
            return self._match_reduction(p.term, s.term)
        return self._match_term(p.term, s.term)

    def _assign_terms(self, pattern: list[tuple[float, Term]], found: list[tuple[float, Term]]) -> bool:
        """Return whether the terms match in some order."""
        if not pattern:
            return True
        (sign, first), *rest = pattern
        for i, (other, term) in enumerate(found):
            saved = self._save()
            if self._match(first, term, sign * other) and self._assign_terms(rest, found[:i] + found[i + 1 :]):
                return True
            self._restore(saved)
        return False

    def _rank(self, term: Term) -> int:
        """The order in which terms are assigned: those with structure bind the variables of the others."""
        if not self._is_variable(term):
            return 0
        return 1 if self._pattern.strip(term).value in self.values else 2

    # --- state ------------------------------------------------------------------------------------------------------

    def _is_variable(self, p: Term) -> bool:
        return self._pattern.node(p) is None

    def _note(self, p: Term, s: Term) -> None:
        """Remember which values match, for the results of the pattern."""
        self.values[p.value] = s.value
        a, b = self._pattern.node(p), self._subject.node(s)
        if a is not None and b is not None and a.op is b.op:
            self.values.update(zip(a.outputs, b.outputs, strict=True))

    def _save(self) -> tuple[dict[int, int], dict[str, float]]:
        return dict(self.values), dict(self.numbers)

    def _restore(self, saved: tuple[dict[int, int], dict[str, float]]) -> None:
        self.values, self.numbers = saved


def close(number: float, pattern: float) -> bool:
    """Return whether a number is a pattern's constant, within rounding."""
    return math.isclose(number, pattern, rel_tol=_CLOSE)


def _own_terms(expressions: Expressions, node: Node) -> list[Term | Operand]:
    """The operands of a node that is not pointwise, each as a function of its own index."""
    return [expressions.whole(x.index) if isinstance(x, Value) else x for x in node.inputs]


def _other_params(node: Node) -> dict[str, Any]:
    return {name: value for name, value in node.bound.items() if name not in ("axis", "keepdims")}
