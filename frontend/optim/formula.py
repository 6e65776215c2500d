"""Formulas of one element on lists of tensors: one op computes all tensors, in a few launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.creation import empty
from polyhal.hal.core import dispatch
from polyhal.hal.dtypes import DType
from polyhal.hal.ops import OPS
from polyhal.hal.ops.optim.rule_program import RuleProgram, trace_formula
from polyhal.tensor import Tensor

_OP = OPS["foreach_elementwise"]
Lists = Sequence[Sequence[Tensor]]


class ElementFormula:
    """A formula `function(ops, *elements, **numbers)` of one element of each list (see hal/ops/optim/update_rule.py).

    The last `singles` lists have one number for each tensor. Values of the formula are written to the targets; further ones
    are summed over the elements of each tensor.
    """

    def __init__(self, function: Callable[..., Sequence[Any]], *, singles: int = 0) -> None:
        self._function, self._singles = function, singles
        self._programs: dict[Any, RuleProgram] = {}

    def __call__(self, lists: Lists, numbers: Mapping[str, Any], targets: Lists) -> list[Tensor]:
        """Compute all tensors. Tensors of one list have one dtype. Returns the vectors of sums.

        `numbers` may be runtime scalars; the formula adds, subtracts, multiplies and divides them.
        """
        count = len(lists[0])
        program = self._program([xs[0].dtype for xs in lists], tuple(numbers), [xs[0].dtype for xs in targets])
        shared = program.numbers(*numbers.values())
        results, sums = program.results[: len(targets)], program.results[len(targets) :]
        vectors = [empty((count,), program.wide, lists[0][0].device) for _ in sums]
        outputs = (*(x for xs in targets for x in xs), *vectors)
        inputs = (*(x for xs in lists for x in xs), *shared)
        dispatch.apply_into(_OP, inputs, (len(lists), count, program.steps, results, sums), outputs)
        return vectors

    def _program(self, kinds: Sequence[DType], names: Sequence[str], results: Sequence[DType]) -> RuleProgram:
        key = (*kinds, *results)
        if key not in self._programs:
            self._programs[key] = trace_formula(self._function, kinds, self._singles, names, results)
        return self._programs[key]
