"""Gradient rules of ops, and the saved values that the gradient of each input reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
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
    others: tuple[tuple[str, int], ...]
    """The other inputs. The decomposition may read them if a gradient arrives at an output that the rule does not name.

    Names begin with `DECOMPOSED`, because the rule must not find them.
    """


DECOMPOSED = "decomposed "
NOTHING = Saved((), (), ())


class RuleArgumentKind(Enum):
    """Kinds of arguments of a rule's functions."""

    RESULT_GRADIENT = auto()
    """The gradient of the first output, as `g`: zeros if it has none."""
    OUTPUT_GRADIENT = auto()
    """The gradient of an output, as `g_NAME`: None if it has none."""
    SAVED = auto()
    """An input or an output; None if no needed gradient reads it."""
    SPEC = auto()
    """The spec of an input, as `NAME_spec`."""
    SPECS = auto()
    """The specs of all inputs of a variadic op, as `NAME_specs`."""
    NEEDS = auto()
    """Which inputs require a gradient, as `needs`."""


class RuleArgument(NamedTuple):
    """A positional argument of a rule's function."""

    kind: RuleArgumentKind
    name: str
    position: int
    """Position of the output or input among the op's; 0 for kinds without one."""


class RulePart(NamedTuple):
    """A function of a rule."""

    function: RuleFunction
    arguments: tuple[RuleArgument, ...]
    params: tuple[str, ...]
    """Names of the op's parameters that it takes."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its positional parameters."""
        return tuple(a.name for a in self.arguments)


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
    """Declare that the gradients of these inputs are piecewise constant in them (`relu`): second derivatives are zeros.

    As in PyTorch, such a gradient requires a gradient under `create_graph`. Other gradients that do not depend on their input
    (`sum`, `clamp`) do not.
    """
    return _follow(dict.fromkeys(names, True))


def linear_in(*names: str) -> Callable[[RuleFunction], RuleFunction]:
    """Declare that all gradients of an op require a gradient under `create_graph` if one of these inputs does.

    As in PyTorch, the inputs get no gradient from a backward pass through gradients that do not depend on them. This applies
    to convolutions, whose gradients PyTorch computes in one op.
    """
    return _follow(dict.fromkeys(names, False))


def depends(**names: str) -> Callable[[RuleFunction], RuleFunction]:
    """Declare the inputs that saved outputs depend on, if not on all: `@depends(rstd="x")`. Names are separated by spaces.

    A gradient that reads such an output requires a gradient under `create_graph` only if one of these inputs does.
    """

    def declare(function: RuleFunction) -> RuleFunction:
        function.depends = {name: tuple(read.split()) for name, read in names.items()}  # type: ignore[attr-defined]
        return function

    return declare


def copies_results(function: RuleFunction) -> RuleFunction:
    """Declare that programs may write in place to results that the rule reads: the tape copies them before the first write.

    In PyTorch these ops are composed of others, which save intermediate values.
    """
    function.copies = True  # type: ignore[attr-defined]
    return function


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

    __slots__ = (
        *("_reads", "_schema", "copies", "depends", "follows", "joint", "linear", "needs", "params", "parts", "saved"),
        "unnamed_outputs",
    )

    follows: frozenset[int]
    """Inputs to which their gradients have an edge for second derivatives of zeros (`flat_in`)."""
    linear: tuple[int, ...]
    """Inputs to which all gradients have an edge without second derivatives (`linear_in`)."""
    depends: dict[str, tuple[int, ...]]
    """The inputs that saved outputs depend on, by the names of outputs that do not depend on all (`depends`)."""

    def __init__(self, declared: Declared, schema: Schema) -> None:
        """Raises ValueError if there are not as many functions as inputs, or if `reads` names something else."""
        self._schema = schema
        functions: Sequence[RuleFunction | None] = declared if isinstance(declared, tuple) else (declared,)
        self.parts = tuple(None if f is None else _part(f, schema) for f in functions)
        """One for each input, or the only one."""
        self.joint = None if isinstance(declared, tuple) else self.parts[0]
        """The function for all inputs, if the rule is one."""
        parts = [p for p in self.parts if p is not None]
        self.needs = tuple(dict.fromkeys(n for p in parts for n in p.names))
        """Names of all arguments of the functions."""
        self.params = tuple(dict.fromkeys(n for p in parts for n in p.params))
        self.unnamed_outputs = tuple(i for i, n in enumerate(schema.outputs) if i and f"g_{n}" not in self.needs)
        """Positions of further outputs without a parameter `g_NAME`."""
        self.copies = any(getattr(f, "copies", False) for f in functions)
        """True if saved results are copied before a program overwrites them (`copies_results`)."""
        follows = {n: zeros for f in functions for n, zeros in getattr(f, "follows", {}).items()}
        self.follows = frozenset(schema.inputs.index(n) for n, zeros in follows.items() if zeros)
        self.linear = tuple(schema.inputs.index(n) for n, zeros in follows.items() if not zeros)
        read = {n: names for f in functions for n, names in getattr(f, "depends", {}).items()}
        self.depends = {n: tuple(map(schema.inputs.index, names)) for n, names in read.items()}
        self._reads = self._read_by_input(declared)
        self.saved = _SavedByMask(self)
        """The values to keep, by the inputs that require a gradient: a set of bits."""

    def _read_by_input(self, declared: Declared) -> list[tuple[str, ...]]:
        """Return the names of the saved values that the gradient of each input reads."""
        inputs = self._schema.inputs
        if isinstance(declared, tuple):
            if len(declared) != len(inputs):
                raise ValueError(f"{len(declared)} gradient functions for the inputs {inputs}; expected one for each")
            return [() if p is None else p.names for p in self.parts]
        given: Mapping[str, tuple[str, ...]] = getattr(declared, "reads", {})
        unknown = {*given, *(n for names in given.values() for n in names)} - {*inputs, *self.needs}
        if unknown:
            raise ValueError(f"a gradient rule reads {sorted(unknown)}; expected names among {inputs} and {self.needs}")
        return [given.get(name, self.needs) for name in inputs]

    def saved_for(self, mask: int) -> Saved:
        """Compute `saved[mask]`: the values to keep for the gradients of the inputs in `mask`, a set of bits."""
        schema = self._schema
        read = {n for i, names in enumerate(self._reads) if mask >> i & 1 for n in names}
        others = [(DECOMPOSED + name, i) for i, name in enumerate(schema.inputs) if name not in read]
        saved = Saved(
            _positions(schema.inputs, read),
            _positions(schema.outputs, read),
            tuple(others if self.unnamed_outputs else ()),
        )
        return saved if any(saved) else NOTHING


class _SavedByMask(dict[int, Saved]):
    """The values that a rule keeps, computed once for each mask."""

    __slots__ = ("_rule",)

    def __init__(self, rule: GradientRule) -> None:
        self._rule = rule

    def __missing__(self, mask: int) -> Saved:
        self[mask] = saved = self._rule.saved_for(mask)
        return saved


def _part(function: RuleFunction, schema: Schema) -> RulePart:
    names, params, _, _ = arguments(function)
    return RulePart(function, tuple(_argument(name, schema) for name in names), params)


def _argument(name: str, schema: Schema) -> RuleArgument:
    """Return the argument for a parameter of this name. Raises ValueError for an unknown name."""
    if name == "g":
        return RuleArgument(RuleArgumentKind.RESULT_GRADIENT, name, 0)
    if name in schema.inputs or name in schema.outputs:
        return RuleArgument(RuleArgumentKind.SAVED, name, 0)
    if name == "needs":
        return RuleArgument(RuleArgumentKind.NEEDS, name, 0)
    if name.startswith("g_") and name[2:] in schema.outputs:
        return RuleArgument(RuleArgumentKind.OUTPUT_GRADIENT, name, schema.outputs.index(name[2:]))
    base = name.removesuffix("_specs").removesuffix("_spec")
    if base not in schema.inputs:
        raise ValueError(f"a gradient rule takes {name!r}; expected g, needs, or a name made of {schema.inputs}")
    return RuleArgument(
        RuleArgumentKind.SPECS if schema.variadic else RuleArgumentKind.SPEC, name, schema.inputs.index(base)
    )


def _positions(names: Sequence[str], read: set[str]) -> tuple[tuple[str, int], ...]:
    return tuple((name, i) for i, name in enumerate(names) if name in read)
