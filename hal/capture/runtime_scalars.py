"""Python numbers of a captured step that are computed anew at each run: learning rates, step counts, random offsets.

While a step is captured, `number` and `each_run` leave a note instead of acting: the replay reads the number, or acts, in
the order of the notes. Outside a capture they act at once, so that code is written once for both.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from polyhal.hal import dispatch
from polyhal.hal.capture.user_line import user_line
from polyhal.hal.errors import CaptureError, message

Number = bool | int | float


class RuntimeScalar:
    """A number that may differ from run to run. Arithmetic on it gives another one; a comparison raises CaptureError."""

    __slots__ = ("compute", "increment", "name", "value")

    def __init__(self, compute: Callable[[], Number], name: str = "", increment: int = 0) -> None:
        """`increment` says by how much the number grows at each run, where that is all that happens to it."""
        self.compute = compute
        self.name = name
        self.increment = increment
        self.value: Any = compute()

    def refresh(self) -> None:
        """Compute the number of this run."""
        self.value = self.compute()

    def __repr__(self) -> str:
        return f"live {type(self.value).__name__}, now {self.value}"

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
    """A live number computed from others whenever it is looked at: by `operation` of `operands`, if that has a name."""

    __slots__ = ("operands", "operation")

    def __init__(self, compute: Callable[[], Number], operation: str = "", operands: Sequence[Any] = ()) -> None:
        self.compute = compute
        self.name = ""
        self.increment = 0
        self.operation = operation
        self.operands = tuple(operands)

    @property
    def value(self) -> Any:
        return self.compute()

    def refresh(self) -> None:
        """Nothing is kept."""


def values(operands: Iterable[Any]) -> list[Any]:
    """Operands with today's values in place of live numbers."""
    return [x.value if isinstance(x, RuntimeScalar) else x for x in operands]


class SharedDerivation:
    """Numbers that a function computes together from operands of which some are live."""

    __slots__ = ("_function", "_given", "_operands", "_results")

    def __init__(self, function: Callable[..., Sequence[Number]], operands: Sequence[Any]) -> None:
        self._function = function
        self._operands = tuple(operands)
        self._given: list[Any] | None = None
        self._results: Sequence[Number] = ()

    def results(self) -> Sequence[Number]:
        """Today's numbers: the same object as long as the operands stay as they are."""
        now = values(self._operands)
        if self._given != now:
            self._given, self._results = now, self._function(*now)
        return self._results


class ScalarElement(DerivedScalar):
    """One of the numbers of a derivation."""

    __slots__ = ("derivation", "place")

    def __init__(self, derivation: SharedDerivation, place: int) -> None:
        super().__init__(lambda: derivation.results()[place])
        self.derivation = derivation
        self.place = place


def derive(function: Callable[..., Sequence[Number]], operands: Sequence[Any], count: int) -> Sequence[Any]:
    """The `count` numbers of `function(*operands)`; live ones if an operand is live."""
    if not any(isinstance(x, RuntimeScalar) for x in operands):
        return function(*operands)
    derivation = SharedDerivation(function, operands)
    return [ScalarElement(derivation, i) for i in range(count)]


class RandomScalar(RuntimeScalar):
    """The seed of a random stream, or the offset of some of the words that a run takes from it."""

    __slots__ = ("start", "stream")

    def __init__(self, stream: RandomStream, start: int | None = None) -> None:
        """`start` counts blocks from the first that the run takes; None for the seed."""
        self.stream = stream
        self.start = start
        super().__init__(
            (lambda: stream.seed) if start is None else (lambda: stream.offset + start),
            "random seed" if start is None else "random offset",
        )


class RandomStream:
    """The random numbers that a step takes from one generator, drawn in one go at each run."""

    __slots__ = ("_take", "blocks", "generator", "numbers", "offset", "seed")

    def __init__(self, generator: object, take: Callable[[int], tuple[int, int]]) -> None:
        self.generator = generator
        """Kept so that its number stays its own."""
        self._take = take
        self.blocks = 0
        """How many blocks of four words a run takes."""
        self.seed = self.offset = 0
        self.numbers: list[RuntimeScalar] = []

    def draw(self) -> None:
        """Take the words of one run."""
        self.seed, self.offset = self._take(4 * self.blocks)
        for number in self.numbers:
            number.refresh()

    def reserve(self, count: int) -> tuple[RuntimeScalar, RuntimeScalar]:
        """Seed and offset of `count` words, counted in whole blocks as the generator does."""
        found = RandomScalar(self), RandomScalar(self, self.blocks)
        self.blocks += -(-count // 4)
        self.numbers += found
        return found


OPERATIONS: dict[str, Callable[..., Number]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs")
}
"""The arithmetic of live numbers, by Python's names."""
_OF_ONE = ("neg", "pos", "abs")


def derived(operation: str, *operands: Any) -> RuntimeScalar:
    """The number that an operation gives at each run. Raises KeyError for one that is not listed."""
    function = OPERATIONS[operation]
    return DerivedScalar(lambda: function(*values(operands)), operation, operands)


def _binary(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: RuntimeScalar, other: Any) -> Any:
        return derived(name, self, other) if isinstance(other, (RuntimeScalar, int, float)) else NotImplemented

    def backward(self: RuntimeScalar, other: Any) -> Any:
        return derived(name, other, self) if isinstance(other, (int, float)) else NotImplemented

    return forward, backward


for _name in OPERATIONS:
    if _name in _OF_ONE:
        setattr(RuntimeScalar, f"__{_name}__", lambda self, name=_name: derived(name, self))
        continue
    _forward, _backward = _binary(_name)
    setattr(RuntimeScalar, f"__{_name}__", _forward)
    setattr(RuntimeScalar, f"__r{_name}__", _backward)


def described(x: Any) -> str:
    """What a number is, for people: its name, or how it is computed."""
    if isinstance(x, DerivedScalar) and x.operation:
        return f"{x.operation}({', '.join(map(described, x.operands))})"
    return (x.name or "number") if isinstance(x, RuntimeScalar) else repr(x)


def number(compute: Callable[[], Number], name: str = "", increment: int = 0) -> Any:
    """`compute()`; in a capture a `RuntimeScalar` number that is computed at each run. See `RuntimeScalar` for `increment`."""
    capture = dispatch.thread.capture
    return compute() if capture is None else capture.number(compute, name, increment)


def each_run(action: Callable[[], object]) -> None:
    """Do `action` now; in a capture at each run, before its kernels and in the order of the notes."""
    capture = dispatch.thread.capture
    if capture is None:
        action()
    else:
        capture.each_run(action)


def undo(action: Callable[[], object]) -> None:
    """Do `action` should the capture under way fail; nothing outside a capture."""
    capture = dispatch.thread.capture
    if capture is not None:
        capture.undo(action)
