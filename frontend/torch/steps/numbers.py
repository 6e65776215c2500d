"""Python numbers that each run of a recorded step recomputes: learning rates, step counts, float arguments.

While a step is recorded, such a number is a float that records its origin. Arithmetic returns another live number; a
comparison or a conversion to a plain number becomes a check before each run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol

from polyhal.hal.core.execution.runtime_scalars import OPERATIONS, RuntimeScalar, apply_operation


class Decisions(Protocol):
    """Recorder of the branches that Python takes on live numbers."""

    def before_decision(self) -> None:
        """Prepare for a branch, before its outcome is computed."""
        ...

    def expect(self, compute: Callable[[], Any], outcome: Any) -> None:
        """Check in each run that `compute()` still returns `outcome`."""
        ...


class LiveNumber(float):
    """A float that differs from run to run. Its float value is a stand-in that identifies it among operands."""

    __slots__ = ("decisions", "scalar")

    scalar: RuntimeScalar
    """Number that each run recomputes."""
    decisions: Decisions

    def __new__(cls, stand_in: float, scalar: RuntimeScalar, decisions: Decisions) -> LiveNumber:
        """Create a number whose float value is `stand_in`, so that a recording cannot mistake it for a constant."""
        self = super().__new__(cls, stand_in)
        self.scalar = scalar
        self.decisions = decisions
        return self

    def settled(self) -> float:
        """Return the current value as a plain float. The recording is invalid for runs with another value."""
        self.decisions.before_decision()
        value: float = self.scalar.value
        self.decisions.expect(lambda: self.scalar.value, value)
        return value

    def __repr__(self) -> str:
        return repr(self.scalar.value)

    def __format__(self, spec: str) -> str:
        return format(self.scalar.value, spec)

    def __copy__(self) -> LiveNumber:
        return self

    def __deepcopy__(self, memo: Any) -> LiveNumber:
        return self

    def __reduce__(self) -> Any:
        return float, (self.settled(),)

    def __hash__(self) -> int:
        return hash(self.settled())

    def __bool__(self) -> bool:
        return _decided(operator.truth, self)

    def __float__(self) -> float:
        return self.settled()


def true_value(x: Any) -> Any:
    """Return the current value of a number."""
    return x.scalar.value if isinstance(x, LiveNumber) else x


def stand_in(value: float, index: int, epsilon: float = 2.0**-40) -> float:
    """Return a float near `value`, different for each `index` and slightly nearer to 0, to satisfy the bounds of `value`."""
    return value * (1 - (index + 1) * epsilon) if value else (index + 1) * 2.0**-100


def _compared(compare: Callable[..., bool], self: LiveNumber, other: int) -> Any:
    return _decided(compare, self, other) if isinstance(other, (int, float)) else NotImplemented


def _decided(predicate: Callable[..., bool], *operands: Any) -> bool:
    live = next(x for x in operands if isinstance(x, LiveNumber))
    live.decisions.before_decision()
    outcome = predicate(*map(true_value, operands))
    live.decisions.expect(lambda: predicate(*map(true_value, operands)), outcome)
    return outcome


def _computed(name: str, self: LiveNumber, *operands: Any) -> Any:
    """Return the live result of arithmetic; a result that is not a float is plain, and each run checks its operands."""
    if not all(isinstance(x, (int, float)) for x in operands):
        return NotImplemented
    function = OPERATIONS[name]
    plain = [float.__pos__(x) if isinstance(x, LiveNumber) else x for x in operands]
    outside = function(*plain)
    if type(outside) is not float:
        return function(*[x.settled() if isinstance(x, LiveNumber) else x for x in operands])
    scalar = apply_operation(name, *[x.scalar if isinstance(x, LiveNumber) else x for x in operands])
    return LiveNumber(outside, scalar, self.decisions)


def _install() -> None:
    """Define the operators of `LiveNumber`."""
    for name in OPERATIONS:
        if name in ("neg", "pos", "abs"):
            setattr(LiveNumber, f"__{name}__", lambda self, name=name: _computed(name, self, self))
            continue
        setattr(LiveNumber, f"__{name}__", lambda self, other, name=name: _computed(name, self, self, other))
        setattr(LiveNumber, f"__r{name}__", lambda self, other, name=name: _computed(name, self, other, self))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        compare = getattr(operator, name)
        setattr(LiveNumber, f"__{name}__", lambda self, other, compare=compare: _compared(compare, self, other))
    for name in ("int", "trunc", "floor", "ceil", "round", "divmod", "rdivmod"):
        method = getattr(float, f"__{name}__")
        setattr(LiveNumber, f"__{name}__", lambda self, *a, method=method: method(self.settled(), *a))
    for name in ("is_integer", "as_integer_ratio", "hex"):
        method = getattr(float, name)
        setattr(LiveNumber, name, lambda self, method=method: method(self.settled()))


_install()
