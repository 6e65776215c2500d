"""Arithmetic, comparison, logic and activations, applied element by element with NumPy's broadcasting."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dispatch import unsupported_dtype
from polyhal.hal.dtypes import DType, promote, promote_scalar, to_float
from polyhal.hal.layout import ScalarSpec, Spec, View, broadcast_shapes, broadcast_strides
from polyhal.hal.ops.opdef import (
    OPS,
    CoreCall,
    CoreInput,
    ErrorSample,
    OpDef,
    Output,
    Params,
    Sample,
    Specs,
    Tolerance,
)
from polyhal.hal.ops.traits import Autocast, Trait
from polyhal.hal.protocol import REQUIRED_BINARY, REQUIRED_UNARY, ComputeBackend, Declined

Operand = Literal["any", "float", "numeric", "integral", "bool", "cast"]
"""What an op computes in: the promotion of its inputs (`any`; `numeric` refuses bool, `integral` floats too), that
promotion made floating point (`float`), bool, or each input's own dtype (`cast`)."""

CORE_NAMES: dict[str, str] = {
    "negative": "neg",
    "logical_not": "not",
    "bitwise_invert": "not",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "truncating_divide": "div",
    "maximum": "max",
    "minimum": "min",
    "less": "lt",
    "equal": "eq",
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "bitwise_left_shift": "shl",
    "bitwise_right_shift": "shr",
}
"""Ops whose name in the contract differs from their own."""

OPERANDS: dict[str, Operand] = {}
"""The operand rule of each declared elementwise op; filled while this module is imported, never later."""


def operand_dtype(op: str, inputs: Specs) -> DType:
    """The dtype in which elementwise `op` computes: what its inputs are cast to before it is applied.

    Raises UnsupportedDTypeError where the op does not take that kind. For `where` it is the dtype of both branches.
    """
    rule = OPERANDS[op]
    if op == "where":
        inputs = inputs[1:]
    dtype: DType | None = None
    for s in inputs:
        if isinstance(s, Spec):
            dtype = s.dtype if dtype is None else promote(dtype, s.dtype)
    for s in inputs:
        if isinstance(s, ScalarSpec):
            dtype = s.dtype if dtype is None else promote_scalar(dtype, _PYTHON_KIND[s.dtype.kind])
    assert dtype is not None
    if rule == "bool":
        return dtypes.bool_
    if rule == "float":
        return to_float(dtype)
    if rule == "numeric" and dtype.kind == "bool":
        raise unsupported_dtype(OPS[op], dtype, "numbers")
    if rule == "integral" and dtype.kind == "float":
        raise unsupported_dtype(OPS[op], dtype, "integers or bool")
    return dtype


_PYTHON_KIND: dict[str, type] = {"bool": bool, "int": int, "uint": int, "float": float}


def _infer(op: str, result: DType | None) -> Callable[[Specs, dict[str, Any]], list[Output]]:
    def infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
        shape = broadcast_shapes(*[s.shape for s in specs if s is not None])
        dtype = operand_dtype(op, specs)
        return [(result or dtype, shape)]

    return infer


def _core(op: str, arity: int) -> Callable[[ComputeBackend, Specs, tuple[Spec, ...], Params], CoreCall | Declined]:
    """Run through `unary`, `binary` or `where` of the contract, where the backend has the name."""
    name = CORE_NAMES.get(op, op)

    def core(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall | Declined:
        capabilities = backend.capabilities
        known = {
            1: REQUIRED_UNARY | capabilities.unary,
            2: REQUIRED_BINARY | capabilities.binary,
            3: frozenset({"where"}),
        }[arity]
        if name not in known:
            return Declined(f"the backend has no {name}")
        operand, (output,) = operand_dtype(op, specs), outputs
        inputs: list[CoreInput | None] = []
        for i, s in enumerate(specs):
            assert s is not None
            condition = op == "where" and i == 0
            view = View(output.shape, broadcast_strides(s.shape, s.strides, output.shape))
            inputs.append(CoreInput(dtypes.bool_ if condition else operand, (output.size,), view, exact=condition))
        if arity == 1:
            run: Callable[..., None] = lambda x, out: backend.unary(name, x, out)  # noqa: E731
        elif arity == 2:
            run = lambda a, b, out: backend.binary(name, a, b, out)  # noqa: E731
        else:
            run = backend.where
        exact = output.dtype is dtypes.bool_
        return CoreCall(name, run, tuple(inputs), output.dtype, (output.size,), result_exact=exact)

    return core


def elementwise(
    name: str,
    reference: Callable[..., Any],
    doc: str,
    *,
    operand: Operand = "any",
    result: DType | None = None,
    decompose: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    domain: Sequence[tuple[float, float]] = ((-4.0, 4.0),),
    special: bool = True,
    dtypes_: tuple[DType, ...] = (),
    tolerance: Tolerance | None = None,
    core: bool = True,
    inputs: tuple[str, ...] = (),
    params: dict[str, Any] | None = None,
    optional: frozenset[str] = frozenset(),
    samples: Callable[[np.random.Generator], Sequence[Sample]] | None = None,
    errors: Sequence[ErrorSample] = (),
    flops: int = 1,
    traits: Trait = Trait.NONE,
    autocast: Autocast = Autocast.INHERIT,
    spellings: Sequence[Callable[..., Any]] = (),
) -> Callable[..., Any]:
    """Declare an elementwise op. `domain` gives the interval from which each input's samples are drawn.

    `decompose` and `reference` take the inputs by position; ops with parameters say so in `inputs` and `params`.
    """
    arity = len(inputs) or _arity(reference)
    names = inputs or {1: ("x",), 2: ("x", "y"), 3: ("cond", "x", "y")}[arity]
    OPERANDS[name] = operand
    default = {
        "integral": (*dtypes.INTEGERS, dtypes.bool_),
        "float": dtypes.FLOATS,
        "bool": (dtypes.bool_, dtypes.float32),
    }
    numeric = dtypes.FLOATS + dtypes.INTEGERS
    kinds = dtypes_ or default.get(operand, numeric if operand == "numeric" else (*numeric, dtypes.bool_))
    return OPS.declare(
        OpDef(
            name=name,
            family="elementwise",
            doc=doc,
            inputs=names,
            optional=optional,
            variadic=False,
            params=params or {},
            outputs=("out",),
            infer=_infer(name, result),
            reference=reference,
            decompose=decompose,
            gradient=gradient,
            core=_core(name, arity) if core and not params and not optional and arity <= 3 else None,
            samples=samples or _samples(names, tuple(domain), special and operand != "integral"),
            errors=errors,
            dtypes=kinds,
            tolerance=tolerance or Tolerance(1.0 if operand in ("any", "numeric", "integral", "bool", "cast") else 4.0),
            flops=lambda specs, outs, params: flops * outs[0].size,
            traits=traits | Trait.POINTWISE | Trait.INPLACE,
            autocast=autocast,
            spellings=spellings,
        )
    )


def _arity(reference: Callable[..., Any]) -> int:
    nin = getattr(reference, "nin", None)
    return int(nin) if nin is not None else len(inspect.signature(reference).parameters)


_SHAPES: dict[int, list[tuple[tuple[int, ...], ...]]] = {
    1: [((),), ((0,),), ((1,),), ((33,),), ((3, 1, 5),), ((2, 3, 2, 2, 3),)],
    2: [
        ((), ()),
        ((0, 3), (1, 3)),
        ((33,), (33,)),
        ((4, 1, 5), (3, 1)),
        ((6, 5), (5,)),
        ((1, 4), (3, 1)),
        ((2, 1, 3, 1, 2), (3, 1, 2, 1)),
    ],
    3: [((), (), ()), ((0,), (1,), ()), ((33,), (33,), (33,)), ((4, 1), (3,), (4, 3)), ((3, 1, 2), (2, 1, 1, 2), ())],
}
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 0.5, -2.5, 1.5])


def _samples(
    names: tuple[str, ...], domain: tuple[tuple[float, float], ...], special: bool
) -> Callable[[np.random.Generator], list[Sample]]:
    arity = len(names)
    ranges = domain * arity if len(domain) == 1 else domain

    def draw(rng: np.random.Generator, shape: tuple[int, ...], interval: tuple[float, float], condition: bool) -> Any:
        if condition:
            return rng.random(shape) < 0.5
        return rng.uniform(*interval, shape)

    def samples(rng: np.random.Generator) -> list[Sample]:
        out = []
        for shapes in _SHAPES[arity]:
            arrays = [draw(rng, s, r, n == "cond") for s, r, n in zip(shapes, ranges, names, strict=True)]
            out.append(Sample(tuple(arrays)))
        if arity == 1:
            # Log-spaced magnitudes: an error near 0 is invisible to uniform samples.
            small = np.logspace(-6, 0, 13) * min(abs(ranges[0][0]) or abs(ranges[0][1]), abs(ranges[0][1]))
            signed = np.concatenate([-small, small]) if ranges[0][0] < 0 else small
            out.append(Sample((signed,), note="log-spaced", differentiable=False))
        if arity == 2:
            out.append(
                Sample((draw(rng, (5,), ranges[0], False), float(np.mean(ranges[1]) + 0.5)), note="number right")
            )
            out.append(Sample((2.0, draw(rng, (5,), ranges[1], False)), note="number left"))
        if special:
            if arity == 1:
                out.append(Sample((SPECIAL,), special=True))
            elif arity == 2:
                a, b = np.meshgrid(SPECIAL, SPECIAL)
                out.append(Sample((a.reshape(-1), b.reshape(-1)), special=True))
        return out

    return samples


def in_common_dtype(function: Callable[..., Any], x: Any, y: Any) -> Any:
    """Apply `function` to `x` and `y` cast to their common dtype, so that it may branch on the kind."""
    operand = operand_dtype("add", tuple(_spec(v) for v in (x, y)))
    return function(*[v if not hasattr(v, "dtype") or v.dtype is operand else v.cast(dtype=operand) for v in (x, y)])


def _spec(value: Any) -> Any:
    if hasattr(value, "spec"):
        return value.spec
    kind = dtypes.bool_ if isinstance(value, bool) else dtypes.int64 if isinstance(value, int) else dtypes.float32
    return ScalarSpec(kind)
