"""`OpDef`, the single declaration of an op, and the registry of all ops.

Functions, methods, type stubs, plans, gradients, tests and documentation are derived from it. Family files build
OpDefs through `declare` and the constructors of their family.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from polyhal.hal.core import dispatch
from polyhal.hal.errors import ShapeError, message
from polyhal.hal.layout import Spec, View
from polyhal.hal.ops.batching import BatchingRule, along_axis, pointwise
from polyhal.hal.ops.fusion import EpiloguePattern, Pattern
from polyhal.hal.ops.gradient_rule import GradientRule
from polyhal.hal.ops.keywords import MISSING, chosen, second_spellings
from polyhal.hal.ops.lowering import AsView, Decompose, OutputRegion, Regions, Strategy
from polyhal.hal.ops.names import Names
from polyhal.hal.ops.results import NAMED
from polyhal.hal.ops.returns import Returns
from polyhal.hal.ops.samples import OpTests
from polyhal.hal.ops.schema import REQUIRED, IndexRange, Output, Params, Promotion, Schema, Specs
from polyhal.hal.ops.tensor_like import TensorLike
from polyhal.hal.ops.traits import Autocast, Trait
from polyhal.hal.protocol import InputSpec

if TYPE_CHECKING:
    from polyhal.hal.dtypes import DType
    from polyhal.hal.ops.schema import ParamValues


class OpFunction(Protocol):
    """The public function of an op."""

    op: OpDef
    __names__: Names
    __returns__: Returns

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


InferRule = Callable[[Specs, dict[str, Any]], Sequence[Output]]
"""Shape and dtype rule: checks inputs, may normalize the parameters in place, returns the outputs."""
S = TypeVar("S")
ComplexRule = Callable[..., Any]
"""Takes inputs and parameters as the reference does, and computes with ops on real and imaginary parts."""
CostRule = Callable[[Specs, tuple[Spec, ...], Params], int]


class PartOfCall(NamedTuple):
    """Part of a call that is a call of its own: positions of inputs and outputs, and parameters."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    params: Params


@dataclass(eq=False, slots=True, kw_only=True)
class OpDef:
    """One op: schema, semantics, lowering strategies, facts for passes, and test declarations."""

    name: str
    names: Names = field(default_factory=Names)
    """Further names of the public function."""
    family: str
    doc: str
    schema: Schema

    infer: InferRule
    reference: Callable[..., Any]
    """The op in NumPy: the reference for tests of every device, and the last way to run it."""
    gradient: GradientRule | None = None
    """None: derived from the decomposition, where there is one."""

    lowering: tuple[Strategy, ...] = ()
    """How the op runs without a native kernel, in order of preference."""

    traits: Trait = Trait.NONE
    promotion: Promotion | None = None
    """Rule for the dtype to which an elementwise op casts its inputs; None for other families."""
    autocast: Autocast = Autocast.INHERIT
    spellings: Sequence[Callable[..., Any]] = ()
    """Functions that compute the same from other ops. Passes trace them, as they trace the decomposition, and replace
    matches by this op. A spelling that does not apply to a call returns None."""
    fuses: Pattern | EpiloguePattern | None = None
    """Pattern that passes replace by this op on devices that have a kernel for it."""
    batching: BatchingRule | None = None
    """How a batch of calls is one call. None: as the family is batched, or through the decomposition."""
    settings: tuple[str, ...] = ()
    """Process-wide settings that change the result: `lower` finds them among the parameters (see `hal.core.settings`)."""
    complex: ComplexRule | None = None
    """How the op runs where an input is complex (see `hal/ops/complex_numbers`). None: it takes real numbers only."""
    casts: bool = False
    """The public function takes a further `dtype`, to which it casts the input first, and the result."""
    expression: str = ""
    """The formula of a pointwise op for floats, in the language of `backends/common/codegen/expressions.py`: backends that
    generate elementwise kernels run and fuse it. For ops of other packages; ours are in that file."""
    flops: CostRule | None = None
    """Floating-point operations of a call, from the specs of inputs and outputs."""
    index_range: Callable[[Specs, Params], IndexRange] | None = None
    """For ops that read by index: which indices are in range. Eager calls on CPUs, and all in debug mode, are checked."""
    without_empty: Callable[[Specs, Params], PartOfCall | None] | None = None
    """For ops over lists: the part of a call with empty tensors that computes all elements of its outputs, or None."""
    public: bool = True
    """False for ops that modules and rules use and that users do not call by name."""

    tests: OpTests = field(default_factory=OpTests)

    call: OpFunction = field(init=False)
    """The public function."""
    creates: bool = field(init=False)
    """The op takes no tensor, so that a call names the device."""
    stores_numbers: bool = field(init=False)
    """The op stores Python numbers among its inputs without arithmetic, so that they must fit the dtype."""
    view: Callable[[Spec, Params], View | None] | None = field(init=False, default=None)
    """The rule of the strategy AsView; None without one."""
    regions: Callable[[Specs, tuple[Spec, ...], Params], Sequence[OutputRegion]] | None = field(
        init=False, default=None
    )
    """The rule of the strategy Regions; None without one."""
    decompose: Callable[..., Any] | None = field(init=False, default=None)
    """The function of the strategy Decompose; None without one."""

    def __post_init__(self) -> None:
        schema = self.schema
        if "g" in schema.inputs or set(schema.inputs) & set(schema.outputs):
            raise ValueError(
                f"op {self.name}: inputs {schema.inputs} clash with the names of gradients or outputs {schema.outputs}"
            )
        if schema.optional and REQUIRED in schema.params.values():
            raise ValueError(
                f"op {self.name}: a required parameter follows the optional inputs {sorted(schema.optional)}"
            )
        if "deterministic" in self.settings:
            self.traits |= Trait.NONDETERMINISTIC
        self.creates = Trait.CREATION in self.traits
        self.stores_numbers = Trait.STORES_NUMBERS in self.traits
        if self.batching is None:
            self.batching = _default_batching(self)
        for strategy in self.lowering:
            match strategy:
                case AsView():
                    self.view = strategy.rule
                case Regions():
                    self.regions = strategy.rule
                case Decompose():
                    self.decompose = strategy.function
        self.call = compile_function(self, self.name, dispatch.apply)
        self.call.__names__ = self.names
        self.call.__returns__ = self.returns

    @property
    def is_undefined(self) -> bool:
        """True if the elements of the results are uninitialized."""
        return Trait.UNDEFINED in self.traits

    @property
    def returns(self) -> Returns:
        """Declaration of the memory of the result."""
        if self.view is None:
            return Returns.COPY if self.family == "movement" else Returns.NEW
        return Returns.VIEW if len(self.lowering) == 1 else Returns.EITHER

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def strategy(self, kind: type[S]) -> S | None:
        """The lowering strategy of one kind, if the op declares it."""
        return next((s for s in self.lowering if isinstance(s, kind)), None)

    def view_of(self, spec: InputSpec | None, params: Params) -> View | None:
        """The view of the first input that the op returns, or None where it makes a new tensor."""
        return self.view(spec, params) if self.view is not None and isinstance(spec, Spec) else None

    def bind(self, params: ParamValues) -> dict[str, Any]:
        """Parameter values as a dictionary by name."""
        return dict(zip(self.schema.params, params, strict=True))

    def fail(self, problem: str, *, expected: str = "", fix: str = "") -> ShapeError:
        """A ShapeError in the common form, for `raise op.fail(...)`."""
        return ShapeError(message(self.name, problem, expected=expected, fix=fix))


def _default_batching(op: OpDef) -> BatchingRule | None:
    """The rule that an op's traits and parameters imply."""
    if Trait.POINTWISE in op.traits:
        return pointwise
    return along_axis if op.schema.inputs and "axis" in op.schema.params else None


def compile_function(op: OpDef, function_name: str, apply: Callable[..., Any]) -> OpFunction:
    """A function with the arguments of `op` that calls `apply(op, inputs, params)`.

    It is compiled from text: binding arguments by hand would cost more than the op.
    """
    schema = op.schema
    variables: dict[str, Any] = {
        "_op": op,
        "_apply": apply,
        "_chosen": chosen,
        "_missing": MISSING,
        "_name": function_name,
    }
    spellings = second_spellings(schema.params)
    late = False
    parameters = [f"{name}=None" if name in schema.optional else name for name in schema.inputs]
    for name, default in schema.params.items():
        # A required parameter in two spellings has a default in Python, and so have all after it.
        late |= default is not REQUIRED or name in spellings
        variables[f"_default_{name}"] = MISSING if default is REQUIRED else default
        parameters.append(f"{name}=_default_{name}" if late else name)
    if op.creates:
        parameters.append("device=None")
    if op.casts:
        parameters.append("dtype=None")
        variables["_in_dtype"] = _in_dtype
    if spellings:
        parameters += ["*", *(f"{second}=_missing" for second in spellings.values())]
    inputs = f"tuple({schema.inputs[0]})" if schema.variadic else _tuple(schema.inputs)
    device = ", device" if op.creates else ""
    call = f"_apply(_op, {inputs}, {_tuple(schema.params)}{device})"
    if schema.outputs in NAMED:
        variables["_named"] = NAMED[schema.outputs]
        call = f"_named(*{call})"
    source = "\n".join(
        [
            f"def call({', '.join(parameters)}):",
            *_spelling_lines(spellings, schema.params),
            *(_dtype_lines(schema) if op.casts else ()),
            f"    return {call}",
        ]
    )
    exec(_compiled(source), variables)
    made: Any = variables["call"]
    made.__code__ = made.__code__.replace(co_name=function_name, co_qualname=function_name)
    made.__name__ = made.__qualname__ = function_name
    made.__doc__ = op.doc
    made.__module__ = "polyhal"
    function: OpFunction = made
    function.op = op
    return function


@functools.cache
def _compiled(source: str) -> CodeType:
    """The code of a source text, which many ops share: compiling it is most of the cost of a declaration."""
    return compile(source, "<op>", "exec")


def _spelling_lines(spellings: Mapping[str, str], params: Params) -> list[str]:
    """The source text that takes each keyword from the spelling in which it is given."""
    lines = []
    for name, default in params.items():
        second = spellings.get(name)
        given = [f"{second} is not _missing"] * (second is not None)
        absent = [f"{name} is _missing"] * (default is REQUIRED and bool(spellings))
        if given or absent:
            lines.append(f"    if {' or '.join([*given, *absent])}:")
            value = f"{name}, {second!r}, {second or '_missing'}, _default_{name}"
            lines.append(f"        {name} = _chosen(_name, {name!r}, {value})")
    return lines


def _dtype_lines(schema: Schema) -> list[str]:
    """The source text that handles `dtype`; one comparison where it is not given."""
    call = f"_in_dtype(_op, {schema.inputs[0]}, {_tuple(schema.params)}, dtype)"
    return ["    if dtype is not None:", f"        return {call}"]


def _in_dtype(op: OpDef, x: TensorLike, params: ParamValues, dtype: DType) -> Any:
    """The result of an op of one tensor, computed and returned in `dtype`."""
    cast = OPS["cast"].call
    return cast(dispatch.apply(op, (cast(x, dtype),), params), dtype)


def _tuple(names: Iterable[str]) -> str:
    """The source text of a tuple of variables."""
    return "(" + "".join(f"{name}, " for name in names) + ")"


def _module(op: OpDef) -> str:
    """The module whose function is the op's reference."""
    return getattr(op.reference, "__module__", None) or "an unknown module"


class OpRegistry:
    """All declared ops by name, in the order of their declaration."""

    def __init__(self) -> None:
        self._ops: dict[str, OpDef] = {}

    def add(self, op: OpDef) -> OpFunction:
        """Register `op` and return its public function. Raises ValueError if the name is taken."""
        if op.name in self._ops:
            first = self._ops[op.name]
            raise ValueError(f"op {op.name!r} is declared twice: by {_module(first)} and by {_module(op)}")
        self._ops[op.name] = op
        return op.call

    def __getitem__(self, name: str) -> OpDef:
        return self._ops[name]

    def __contains__(self, name: str) -> bool:
        return name in self._ops

    def __iter__(self) -> Iterator[OpDef]:
        return iter(self._ops.values())

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._ops)


OPS = OpRegistry()
