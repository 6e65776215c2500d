"""Gradient rules of ops, and the saved values that the gradient of each input reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from polyhal.hal.ops.arguments import arguments
from polyhal.hal.ops.schema import Schema

RuleFunction: TypeAlias = Callable[..., Any]
Declared: TypeAlias = "RuleFunction | tuple[RuleFunction | None, ...]"
"""One function for the gradients of all inputs, or one for each input, with None for an input without a gradient."""


class Saved(NamedTuple):
    """The inputs and outputs that a tape node keeps, by name and position."""

    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


class _Part(NamedTuple):
    """A function of a rule."""

    function: RuleFunction
    names: tuple[str, ...]
    """Names of its positional parameters."""
    params: tuple[str, ...]
    """Names of the op's parameters that it takes."""


def reads(**names: str) -> Callable[[RuleFunction], RuleFunction]:
    """Declare the saved values that a rule for all inputs reads for the gradient of each: `@reads(x="weight", bias="")`.

    Names are separated by spaces. For an input without an entry, the rule reads all saved values. A value that no needed
    gradient reads is None when the rule is called.
    """

    def declare(function: RuleFunction) -> RuleFunction:
        function.reads = {name: tuple(read.split()) for name, read in names.items()}  # type: ignore[attr-defined]
        return function

    return declare


def flat_in(*names: str) -> Callable[[RuleFunction], RuleFunction]:
    """Declare that the gradients of these inputs change with them by steps (`relu`): second derivatives are zeros.

    As in PyTorch such a gradient requires a gradient under `create_graph`, and is differentiated to zeros. Other gradients that
    do not depend on their input (`sum`, `clamp`) are constants there.
    """
    return _follow(dict.fromkeys(names, True))


def linear_in(*names: str) -> Callable[[RuleFunction], RuleFunction]:
    """Declare that the gradients of these inputs do not depend on them, but require a gradient under `create_graph`.

    As in PyTorch a backward pass through them ends there: for convolutions, whose two gradients it computes as one op.
    """
    return _follow(dict.fromkeys(names, False))


def _follow(names: dict[str, bool]) -> Callable[[RuleFunction], RuleFunction]:
    def declare(function: RuleFunction) -> RuleFunction:
        function.follows = names  # type: ignore[attr-defined]
        return function

    return declare


class GradientRule:
    """The gradients of an op's inputs, and the values that they need by the signatures of the functions.

    The names of positional parameters choose their arguments: `g` is the gradient of the result and `g_NAME` the gradient
    of the output NAME; the name of an input or output is that tensor; `NAME_spec` is the spec of an input, whose data need
    not be kept; `needs` has a bool for each input, true if it requires a gradient. Keyword-only parameters are parameters
    of the op.

    The tape keeps a tensor only if the gradient of an input that requires one reads it.
    """

    __slots__ = ("_joint", "_parts", "_reads", "_saved", "_schema", "follows", "needs", "params", "unnamed_outputs")

    follows: dict[int, bool]
    """Inputs whose gradients follow them on the tape, and whether second derivatives are zeros (`flat_in`) or none."""

    def __init__(self, declared: Declared, schema: Schema) -> None:
        """Raises ValueError if there are not as many functions as inputs, or if `reads` names something else."""
        self._schema = schema
        self._joint = not isinstance(declared, tuple)
        functions: Sequence[RuleFunction | None] = declared if isinstance(declared, tuple) else (declared,)
        self._parts = tuple(None if f is None else _part(f) for f in functions)
        parts = [p for p in self._parts if p is not None]
        self.needs = tuple(dict.fromkeys(n for p in parts for n in p.names))
        """Names of all arguments of the functions."""
        self.params = tuple(dict.fromkeys(n for p in parts for n in p.params))
        self.unnamed_outputs = tuple(i for i, n in enumerate(schema.outputs) if i and f"g_{n}" not in self.needs)
        """Positions of further outputs without a parameter `g_NAME`."""
        follows = {n: zeros for f in functions for n, zeros in getattr(f, "follows", {}).items()}
        self.follows = {schema.inputs.index(n): zeros for n, zeros in follows.items()}
        self._reads = self._read_by_input(declared)
        self._saved: dict[int, Saved] = {}

    def _read_by_input(self, declared: Declared) -> list[tuple[str, ...]]:
        """Return the names of the saved values that the gradient of each input reads."""
        inputs = self._schema.inputs
        if isinstance(declared, tuple):
            if len(declared) != len(inputs):
                raise ValueError(f"{len(declared)} gradient functions for the inputs {inputs}; expected one for each")
            return [() if p is None else p.names for p in self._parts]
        given: Mapping[str, tuple[str, ...]] = getattr(declared, "reads", {})
        unknown = {*given, *(n for names in given.values() for n in names)} - {*inputs, *self.needs}
        if unknown:
            raise ValueError(f"a gradient rule reads {sorted(unknown)}; expected names among {inputs} and {self.needs}")
        return [given.get(name, self.needs) for name in inputs]

    def saved_for(self, mask: int) -> Saved:
        """Return the values to keep for the gradients of the inputs in `mask`, a set of bits."""
        saved = self._saved.get(mask)
        if saved is None:
            schema = self._schema
            read = {n for i, names in enumerate(self._reads) if mask >> i & 1 for n in names}
            saved = self._saved[mask] = Saved(_positions(schema.inputs, read), _positions(schema.outputs, read))
        return saved

    def apply(self, argument: Callable[[str], Any], needs: Sequence[bool], params: Mapping[str, Any]) -> Any:
        """Return the gradients of all inputs, or only of the first. `argument` returns the value for a name in `self.needs`."""
        if self._joint:
            return _call(self._parts[0], argument, params)
        return tuple(_call(p, argument, params) if needed else None for p, needed in zip(self._parts, needs, strict=True))


def _part(function: RuleFunction) -> _Part:
    names, params, _, _ = arguments(function)
    return _Part(function, names, params)


def _call(part: _Part | None, argument: Callable[[str], Any], params: Mapping[str, Any]) -> Any:
    if part is None:
        return None
    values = [argument(name) for name in part.names]
    return part.function(*values, **{name: params[name] for name in part.params}) if part.params else part.function(*values)


def _positions(names: Sequence[str], read: set[str]) -> tuple[tuple[str, int], ...]:
    return tuple((name, i) for i, name in enumerate(names) if name in read)
