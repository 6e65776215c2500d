"""Formulas of one element on lists of tensors: one op computes all tensors, in a few launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyhal.creation import empty
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType
from polyhal.hal.ops import OPS
from polyhal.hal.ops.optim.rule_program import RuleProgram, trace_formula
from polyhal.tensor import Tensor

_OP = OPS["foreach_elementwise"]
Lists = Sequence[Sequence[Tensor]]


class Sums:
    """Memory for the sums of formulas, which later steps of an optimizer reuse. A copy and a pickle have none yet."""

    def __init__(self) -> None:
        self._made: dict[Any, tuple[Tensor, Sequence[Tensor]]] = {}

    def __reduce__(self) -> tuple[type[Sums], tuple[()]]:
        return Sums, ()

    def take(self, name: Any, count: int, dtype: DType, device: Device) -> tuple[Tensor, Sequence[Tensor]]:
        """Return a vector of `count` elements, and views of them without axes."""
        key = (name, count, dtype, device)
        if key not in self._made:
            with dispatch.executing(dispatch.EAGER):
                vector = empty((count,), dtype, device)
                self._made[key] = vector, [vector[i] for i in range(count)]
        return self._made[key]


class ElementFormula:
    """A formula `function(ops, *elements, **numbers)` of one element of each list (see hal/ops/optim/update_rule.py).

    The last `singles` lists have one number for each tensor. Values of the formula are written to the targets; further ones
    are summed over the elements of each tensor.
    """

    def __init__(self, function: Callable[..., Sequence[Any]], *, singles: int = 0) -> None:
        self._function, self._singles = function, singles
        self._programs: dict[Any, RuleProgram] = {}

    def __call__(self, lists: Lists, numbers: Mapping[str, Any], targets: Lists, sums: Sums) -> list[Sequence[Tensor]]:
        """Compute all tensors. Tensors of one list have one dtype. Returns the sums of each tensor, without axes.

        They are in the memory of `sums` and hold until the formula is called with it again, on as many tensors. `numbers` may
        be runtime scalars; the formula adds, subtracts, multiplies and divides them.
        """
        count = len(lists[0])
        program = self._program([xs[0].dtype for xs in lists], tuple(numbers), [xs[0].dtype for xs in targets])
        shared = program.numbers(*numbers.values())
        results, summed = program.results[: len(targets)], program.results[len(targets) :]
        device = lists[0][0].device
        taken = [sums.take((self._function.__name__, i), count, program.wide, device) for i in range(len(summed))]
        outputs = (*(x for xs in targets for x in xs), *(vector for vector, _ in taken))
        inputs = (*(x for xs in lists for x in xs), *shared)
        dispatch.apply_into(_OP, inputs, (len(lists), count, program.steps, results, summed), outputs)
        return [elements for _, elements in taken]

    def _program(self, kinds: Sequence[DType], names: Sequence[str], results: Sequence[DType]) -> RuleProgram:
        key = (*kinds, *results)
        if key not in self._programs:
            self._programs[key] = trace_formula(self._function, kinds, self._singles, names, results)
        return self._programs[key]
