"""One declaration per op: everything else about the op is derived from it.

An op is declared by a family constructor (`elementwise`, `reduction`, `movement`, ...) that fills in an `OpDef` and
returns the op's public function, with the signature of its NumPy reference. Inputs are the reference's positional
parameters, parameters its keyword-only ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from polyhal.hal import dispatch
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import Ref, ScalarSpec, Spec, View
from polyhal.hal.ops.traits import Autocast, Trait
from polyhal.hal.protocol import ComputeBackend, Declined, InputSpec

Specs = tuple[InputSpec | None, ...]
Params = Mapping[str, Any]
Output = tuple[DType, tuple[int, ...]]
"""Dtype and shape of a result; results are always contiguous."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs on which an op is tested: arrays and Python numbers in schema order, and parameters.

    Floating-point arrays are given in float64 and cast to the dtype under test; `special` samples hold NaN, infinities or
    boundary values and are checked forward only.
    """

    inputs: tuple[Any, ...]
    params: dict[str, Any] = field(default_factory=dict)
    special: bool = False
    differentiable: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class ErrorSample:
    """A call that must raise `error` with a message that matches `match`."""

    inputs: tuple[Any, ...]
    params: dict[str, Any]
    error: type[Exception]
    match: str


class CoreInput(NamedTuple):
    """How a core method wants one input: viewed as `view` (None: as it is), contiguous as `shape`, in `dtype`."""

    dtype: DType
    shape: tuple[int, ...]
    view: View | None = None
    exact: bool = False
    """True when the dtype must not be widened (conditions, indices)."""


class CoreCall(NamedTuple):
    """A call of a required member of the contract: `run(*inputs, out)` on contiguous refs."""

    name: str
    run: Callable[..., None]
    inputs: tuple[CoreInput | None, ...]
    """None for inputs that the call does not take."""
    result: DType
    shape: tuple[int, ...]
    """The shape in which the output is passed."""
    result_exact: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a graph in single-assignment form, by its number."""

    index: int


class Piece(NamedTuple):
    """A part of an output that is filled with a number or copied from (a view of) an input."""

    target: View
    source: int | None = None
    view: View | None = None
    value: Any = 0
    """The number to fill with where there is no source; a Value names the input that holds it."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Allowed error against the float64 reference, in units in the last place (ULP) of the result dtype.

    `ulp` bounds the rounding of a fixed number of operations. `terms` names how many terms each result accumulates; a sum of
    n terms in precision u is off by at most n u times the sum of magnitudes, and by about sqrt(n) u when errors are
    independent. Units are measured at the larger of the result and `floor`, for ops whose results cancel. `rounded` counts
    the factors of the terms that the op computes itself and may round to a 16-bit result's dtype, because matrix units
    take no wider operands: each is off by half a unit.
    """

    ulp: float = 4.0
    floor: float = 0.0
    terms: Callable[[Specs, Params], int] | None = None
    rounded: int = 0


OpFunction = Callable[..., Any]
"""The public function of an op."""
Gradient = Callable[..., Any]


@dataclass(eq=False, slots=True)
class OpDef:
    """One op: schema, rules, reference, gradient, samples. Built by the family constructors only."""

    name: str
    family: str
    doc: str
    inputs: tuple[str, ...]
    optional: frozenset[str]
    variadic: bool
    params: dict[str, Any]
    """Names and defaults; `inspect.Parameter.empty` where a value is required."""
    outputs: tuple[str, ...]
    infer: Callable[[Specs, dict[str, Any]], Sequence[Output]]
    """Shape and dtype rule: checks inputs, may normalise `params` in place, returns the outputs."""
    reference: Callable[..., Any]
    decompose: Callable[..., Any] | None = None
    gradient: Gradient | None = None
    view: Callable[[Spec, Params], View | None] | None = None
    core: Callable[[ComputeBackend, Specs, tuple[Spec, ...], Params], CoreCall | Declined] | None = None
    assemble: Callable[[Specs, tuple[Spec, ...], Params], Sequence[Piece]] | None = None
    constant: Callable[[Params], np.ndarray] | None = None
    samples: Callable[[np.random.Generator], Sequence[Sample]] | None = None
    errors: Sequence[ErrorSample] = ()
    dtypes: tuple[DType, ...] = ()
    """Dtypes of the first input under which samples are run."""
    tolerance: Tolerance = field(default_factory=Tolerance)
    widen: bool = True
    """A decomposition of half-precision inputs runs in float32 and rounds once, at the end."""
    mutates: tuple[int, ...] = ()
    """Inputs that the outputs replace in place, output i over input mutates[i]."""
    several: bool = False
    """The number of results follows from inputs and parameters; they come as a tuple, be it of one."""
    flops: Callable[[Specs, tuple[Spec, ...], Params], int] | None = None
    settings: tuple[str, ...] = ()
    """Settings of the process that make a difference: `lower` finds them among the parameters (see `hal.settings`)."""
    traits: Trait = Trait.NONE
    """Facts that passes, the scheduler and the planner ask for."""
    autocast: Autocast = Autocast.INHERIT
    """The dtype to which an `autocast` block casts the inputs."""
    spellings: Sequence[Callable[..., Any]] = ()
    """Functions that compute the same from other ops: passes trace them, as they trace `decompose`, for patterns to replace."""
    public: bool = True
    """False for ops that rules and modules use and that users do not call by name."""
    call: Callable[..., Any] = field(init=False)
    creates: bool = field(init=False)
    """Whether the op takes no tensor, so that a call names the device."""
    needs: tuple[str, ...] = field(init=False, default=())
    """The names that the gradient rule asks for, in order; see `polyhal.autograd.rules`."""
    saves_inputs: tuple[str, ...] = field(init=False, default=())
    saves_outputs: tuple[str, ...] = field(init=False, default=())
    gradient_params: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        if "g" in self.inputs or set(self.inputs) & set(self.outputs):
            raise ValueError(
                f"op {self.name}: inputs {self.inputs} clash with the names of gradients or outputs {self.outputs}"
            )
        if "deterministic" in self.settings:
            self.traits |= Trait.NONDETERMINISTIC
        self.creates = Trait.CREATION in self.traits
        self.call = _public_function(self)
        if self.gradient is not None:
            self.needs, self.gradient_params = _gradient_signature(self)
            self.saves_inputs = tuple(n for n in self.needs if n in self.inputs)
            self.saves_outputs = tuple(n for n in self.needs if n in self.outputs)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def returns_tuple(self) -> bool:
        """Whether a call gives a tuple, rather than the one result."""
        return len(self.outputs) > 1 or self.several or bool(self.mutates)

    def bind(self, params: tuple[Any, ...]) -> dict[str, Any]:
        """Positional parameter values as a dictionary by name."""
        return dict(zip(self.params, params, strict=True))

    def fail(self, problem: str, *, expected: str = "", fix: str = "") -> ShapeError:
        """A ShapeError in the common form, for `raise op.fail(...)`."""
        return ShapeError(message(self.name, problem, expected=expected, fix=fix))


def _gradient_signature(op: OpDef) -> tuple[tuple[str, ...], tuple[str, ...]]:
    assert op.gradient is not None
    parameters = inspect.signature(op.gradient).parameters.values()
    needs = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    named = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    return needs, named


def _public_function(op: OpDef) -> Callable[..., Any]:
    """The function that users call. Generated as text, because binding arguments by hand costs more than the op."""
    variables: dict[str, Any] = {"_op": op, "_apply": dispatch.apply}
    names = []
    if op.variadic:
        names.append(op.inputs[0])
        taken = f"tuple({op.inputs[0]})"
    else:
        for name in op.inputs:
            names.append(f"{name}=None" if name in op.optional else name)
        taken = "(" + "".join(f"{name}, " for name in op.inputs) + ")"
    for name, default in op.params.items():
        if default is inspect.Parameter.empty:
            names.append(name)
        else:
            variables[f"_default_{name}"] = default
            names.append(f"{name}=_default_{name}")
    if op.creates:
        names.append("device=None")
    passed = "(" + "".join(f"{name}, " for name in op.params) + ")"
    extra = ", device" if op.creates else ""
    source = f"def {op.name}({', '.join(names)}):\n    return _apply(_op, {taken}, {passed}{extra})\n"
    exec(source, variables)
    function: Callable[..., Any] = variables[op.name]
    function.__doc__ = op.doc
    function.__module__ = "polyhal"
    function.__qualname__ = op.name
    function.op = op  # type: ignore[attr-defined]
    return function


def schema_of(reference: Callable[..., Any]) -> tuple[tuple[str, ...], frozenset[str], bool, dict[str, Any]]:
    """Inputs, optional inputs, whether variadic, and parameters with defaults, read off a reference's signature."""
    inputs: list[str] = []
    optional: set[str] = set()
    variadic = False
    params: dict[str, Any] = {}
    for p in inspect.signature(reference).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            inputs.append(p.name)
            variadic = True
        elif p.kind is p.KEYWORD_ONLY:
            params[p.name] = p.default
        else:
            inputs.append(p.name)
            if p.default is not p.empty:
                optional.add(p.name)
    return tuple(inputs), frozenset(optional), variadic, params


class Registry:
    """All declared ops by name."""

    def __init__(self) -> None:
        self._ops: dict[str, OpDef] = {}

    def declare(self, op: OpDef) -> Callable[..., Any]:
        """Register `op` and return its public function."""
        if op.name in self._ops:
            raise ValueError(f"op {op.name!r} is declared twice")
        self._ops[op.name] = op
        return op.call

    def __getitem__(self, name: str) -> OpDef:
        return self._ops[name]

    def __contains__(self, name: str) -> bool:
        return name in self._ops

    def __iter__(self) -> Any:
        return iter(self._ops.values())

    def names(self) -> list[str]:
        return sorted(self._ops)


OPS = Registry()


def declare(
    reference: Callable[..., Any],
    *,
    name: str | None = None,
    family: str,
    infer: Callable[[Specs, dict[str, Any]], Sequence[Output]],
    outputs: tuple[str, ...] = ("out",),
    **rest: Any,
) -> Callable[..., Any]:
    """Declare the op whose schema, name and one-line doc are those of `reference`."""
    inputs, optional, variadic, params = schema_of(reference)
    return OPS.declare(
        OpDef(
            name=name or reference.__name__,
            family=family,
            doc=inspect.getdoc(reference) or "",
            inputs=inputs,
            optional=optional,
            variadic=variadic,
            params=params,
            outputs=outputs,
            infer=infer,
            reference=reference,
            **rest,
        )
    )


def tensors(specs: Specs) -> list[Spec]:
    """The inputs that are tensors, leaving out numbers and absent ones."""
    return [s for s in specs if isinstance(s, Spec)]


__all__ = [
    "OPS",
    "Autocast",
    "CoreCall",
    "CoreInput",
    "ErrorSample",
    "OpDef",
    "OpFunction",
    "Output",
    "Params",
    "Piece",
    "Ref",
    "Sample",
    "ScalarSpec",
    "Spec",
    "Specs",
    "Tolerance",
    "Trait",
    "Value",
    "View",
    "declare",
    "schema_of",
    "tensors",
]
