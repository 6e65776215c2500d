"""Runtime scalars: Python numbers of a captured step that are computed again before each replay.

Learning rates, step counts and random offsets are such numbers. Arithmetic on one gives another one, so that code is written
once for eager and captured execution.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.core.execution.executor import RandomSource
from polyhal.hal.core.execution.user_line import user_line
from polyhal.hal.errors import CaptureError, message

if TYPE_CHECKING:
    from polyhal.hal.ops.tensor_like import TensorLike

Number = bool | int | float

_WORDS = 4
"""32-bit words in a block of the counter-based generator."""


class RuntimeScalar:
    """A number that may differ from run to run. Arithmetic gives another one; a comparison raises CaptureError."""

    __slots__ = ("compute", "increment", "name", "value")

    def __init__(self, compute: Callable[[], Number], name: str = "", increment: int = 0) -> None:
        """`increment` says by how much the number grows from run to run if nothing else happens to it."""
        self.compute = compute
        self.name = name
        self.increment = increment
        self.value: Any = compute()

    def refresh(self) -> None:
        """Compute the number for the next run."""
        self.value = self.compute()

    def __repr__(self) -> str:
        return f"runtime {type(self.value).__name__}, now {self.value}"

    def _refuse(self, *args: Any) -> Any:
        raise CaptureError(
            message(
                None,
                f"a number that changes from run to run (now {self.value}) decides what Python does, at {user_line()}",
                expected="arithmetic only: a captured step takes the same path at each run",
                fix="move the decision out of the captured function, or use polyhal.where",
            )
        )

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __int__ = __float__ = __index__ = _refuse
    __hash__ = object.__hash__


class DerivedScalar(RuntimeScalar):
    """A runtime scalar computed from others whenever it is read: `operation` of `operands`, if it has a name."""

    __slots__ = ("operands", "operation")

    def __init__(self, compute: Callable[[], Number], operation: str = "", operands: Sequence[Any] = ()) -> None:
        self.compute = compute
        self.name = ""
        self.increment = 0
        self.operation = operation
        self.operands = tuple(operands)

    @property
    def value(self) -> Any:
        """The number that `compute` returns now."""
        return self.compute()

    def refresh(self) -> None:
        """Nothing is stored."""


def current_values(operands: Iterable[Any]) -> list[Any]:
    """`operands` with runtime scalars replaced by their present values."""
    return [x.value if isinstance(x, RuntimeScalar) else x for x in operands]


class SharedDerivation:
    """Several numbers that one function computes in one call from operands, some of them runtime scalars."""

    __slots__ = ("_cached_for", "_results", "function", "operands")

    def __init__(self, function: Callable[..., Sequence[Number]], operands: Sequence[Any]) -> None:
        self.function = function
        self.operands = tuple(operands)
        self._cached_for: list[Any] | None = None
        self._results: Sequence[Number] = ()

    def results(self) -> Sequence[Number]:
        """The present numbers: the same object as long as the operands stay as they are."""
        values = current_values(self.operands)
        if self._cached_for != values:
            self._cached_for, self._results = values, self.function(*values)
        return self._results


class ScalarElement(DerivedScalar):
    """One of the numbers of a shared derivation."""

    __slots__ = ("derivation", "index")

    def __init__(self, derivation: SharedDerivation, index: int) -> None:
        super().__init__(lambda: derivation.results()[index])
        self.derivation = derivation
        self.index = index


def derive(function: Callable[..., Sequence[Number]], operands: Sequence[Any], count: int) -> Sequence[Any]:
    """Return the `count` numbers of `function(*operands)`; runtime scalars if an operand is one.

    For exports, `function` takes the functions that it uses by name, as `functions` (see `RuleProgram.numbers`).
    """
    if not any(isinstance(x, RuntimeScalar) for x in operands):
        return function(*operands)
    derivation = SharedDerivation(function, operands)
    return [ScalarElement(derivation, i) for i in range(count)]


class RandomScalar(RuntimeScalar):
    """The seed of a random stream, or the offset of some of the words that a run draws from it."""

    __slots__ = ("start", "stream")

    def __init__(self, stream: RandomStream, start: int | None = None) -> None:
        """`start` counts blocks from the first that the run draws; None for the seed."""
        self.stream = stream
        self.start = start
        super().__init__(
            (lambda: stream.seed) if start is None else (lambda: stream.offset + start),
            "random seed" if start is None else "random offset",
        )


class RandomStream:
    """The random numbers that a step draws from one source, all at once before each run."""

    __slots__ = ("blocks", "offset", "scalars", "seed", "source")

    def __init__(self, source: RandomSource) -> None:
        self.source = source
        self.blocks = 0
        """Blocks of four words that a run has used up at its end; while recording, up to the present position."""
        self.seed = self.offset = 0
        self.scalars: list[RuntimeScalar] = []

    def draw(self) -> None:
        """Draw the words of one run."""
        self.seed, self.offset = self.source.advance(_WORDS * self.blocks)
        self._refresh()

    def take_back(self) -> None:
        """Return the words of the last run to the source."""
        self.source.set_state({"seed": self.seed, "offset": self.offset})

    def look_ahead(self) -> None:
        """Set the numbers to those that `draw` would draw now, without drawing them."""
        state = self.source.get_state()
        self.seed, self.offset = state["seed"], state["offset"]
        self._refresh()

    def _refresh(self) -> None:
        for scalar in self.scalars:
            scalar.refresh()

    def reserve(self, count: int) -> tuple[RuntimeScalar, RuntimeScalar]:
        """Seed and offset of `count` words, counted in whole blocks as the generator does."""
        scalars = RandomScalar(self), RandomScalar(self, self.blocks)
        self.blocks += -(-count // _WORDS)
        self.scalars += scalars
        return scalars


OPERATIONS: dict[str, Callable[..., Number]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs")
}
"""Arithmetic on runtime scalars, by Python's names."""
_UNARY = ("neg", "pos", "abs")


def apply_operation(operation: str, *operands: Any) -> RuntimeScalar:
    """Return the runtime scalar that an operation computes. Raises KeyError for one that is not in OPERATIONS."""
    function = OPERATIONS[operation]
    return DerivedScalar(lambda: function(*current_values(operands)), operation, operands)


def _binary(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: RuntimeScalar, other: TensorLike | float) -> Any:
        return apply_operation(name, self, other) if isinstance(other, (RuntimeScalar, int, float)) else NotImplemented

    def reflected(self: RuntimeScalar, other: float) -> Any:
        return apply_operation(name, other, self) if isinstance(other, (int, float)) else NotImplemented

    return forward, reflected


for _name in OPERATIONS:
    if _name in _UNARY:
        setattr(RuntimeScalar, f"__{_name}__", lambda self, name=_name: apply_operation(name, self))
        continue
    _forward, _reflected = _binary(_name)
    setattr(RuntimeScalar, f"__{_name}__", _forward)
    setattr(RuntimeScalar, f"__r{_name}__", _reflected)


def describe_scalar(x: Any) -> str:
    """Return a readable text of a number: its name, or its computation."""
    if isinstance(x, DerivedScalar) and x.operation:
        return f"{x.operation}({', '.join(map(describe_scalar, x.operands))})"
    return (x.name or "number") if isinstance(x, RuntimeScalar) else repr(x)
