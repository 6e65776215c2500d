"""Arithmetic, comparison, logic and activations, applied element by element with NumPy's broadcasting."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from polyhal.hal import dtypes
from polyhal.hal.dispatch import unsupported_dtype
from polyhal.hal.dtypes import DType, promote, promote_scalar, to_float
from polyhal.hal.layout import ScalarSpec, Spec, View, broadcast_shapes, broadcast_strides
from polyhal.hal.ops import polynomials
from polyhal.hal.ops.opdef import (
    OPS, CoreCall, CoreInput, ErrorSample, OpDef, Output, Params, Sample, Specs, Tolerance, tensors,
)  # fmt: skip
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

_OPERANDS: dict[str, Operand] = {}
"""The operand rule of each declared elementwise op; filled while this module is imported, never later."""


def operand_dtype(op: str, inputs: Specs) -> DType:
    """The dtype in which elementwise `op` computes: what its inputs are cast to before it is applied.

    Raises UnsupportedDTypeError where the op does not take that kind. For `where` it is the dtype of both branches.
    """
    rule = _OPERANDS[op]
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


def _core(
    op: str, arity: int
) -> Callable[[ComputeBackend, Specs, tuple[Spec, ...], Params], CoreCall | Declined]:
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
) -> Callable[..., Any]:
    """Declare an elementwise op. `domain` gives the interval from which each input's samples are drawn.

    `decompose` and `reference` take the inputs by position; ops with parameters say so in `inputs` and `params`.
    """
    arity = len(inputs) or _arity(reference)
    names = inputs or {1: ("x",), 2: ("x", "y"), 3: ("cond", "x", "y")}[arity]
    _OPERANDS[name] = operand
    default = {"integral": dtypes.INTEGERS + (dtypes.bool_,), "float": dtypes.FLOATS, "bool": (dtypes.bool_, dtypes.float32)}
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
        )
    )


def _arity(reference: Callable[..., Any]) -> int:
    nin = getattr(reference, "nin", None)
    return int(nin) if nin is not None else len(inspect.signature(reference).parameters)


_SHAPES: dict[int, list[tuple[tuple[int, ...], ...]]] = {
    1: [((),), ((0,),), ((1,),), ((33,),), ((3, 1, 5),), ((2, 3, 2, 2, 3),)],
    2: [((), ()), ((0, 3), (1, 3)), ((33,), (33,)), ((4, 1, 5), (3, 1)), ((6, 5), (5,)), ((1, 4), (3, 1)), ((2, 1, 3, 1, 2), (3, 1, 2, 1))],
    3: [((), (), ()), ((0,), (1,), ()), ((33,), (33,), (33,)), ((4, 1), (3,), (4, 3)), ((3, 1, 2), (2, 1, 1, 2), ())],
}  # fmt: skip
_SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 0.5, -2.5, 1.5])


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
            out.append(Sample((draw(rng, (5,), ranges[0], False), float(np.mean(ranges[1]) + 0.5)), note="number right"))
            out.append(Sample((2.0, draw(rng, (5,), ranges[1], False)), note="number left"))
        if special:
            if arity == 1:
                out.append(Sample((_SPECIAL,), special=True))
            elif arity == 2:
                a, b = np.meshgrid(_SPECIAL, _SPECIAL)
                out.append(Sample((a.reshape(-1), b.reshape(-1)), special=True))
        return out

    return samples


# --- arithmetic -----------------------------------------------------------------------------------------------------

add = elementwise("add", np.add, "Sum `x + y`.", gradient=lambda g: (g, g))
subtract = elementwise("subtract", np.subtract, "Difference `x - y`.", operand="numeric", gradient=lambda g: (g, -g))
multiply = elementwise("multiply", np.multiply, "Product `x * y`.", gradient=lambda g, x, y: (g * y, g * x))


def _divide_gradient(g: Any, x: Any, y: Any, needs: tuple[bool, ...]) -> Any:
    quotient = g / y
    return quotient, -quotient * (x / y) if needs[1] else None


divide = elementwise(
    "divide", np.divide, "Quotient `x / y`, floating point also for integers.", operand="float", gradient=_divide_gradient,
    domain=((-4.0, 4.0), (0.5, 4.0)), tolerance=Tolerance(2.5),
)  # fmt: skip


def _floor_divide(x: Any, y: Any) -> Any:
    if np.result_type(x, y).kind == "f":
        return np.floor(np.divide(x, y))
    return np.floor_divide(x, y)


def _floor_divide_decomposed(x: Any, y: Any) -> Any:
    from polyhal.hal.ops.internal import truncating_divide

    if x.dtype.kind == "float" if hasattr(x, "dtype") else y.dtype.kind == "float":
        return floor(x / y)
    quotient = truncating_divide(x, y)
    inexact = not_equal(quotient * y, x)
    return where(logical_and(inexact, not_equal(less(x, 0), less(y, 0))), quotient - 1, quotient)


def _nonzero_samples(rng: np.random.Generator) -> list[Sample]:
    def divisor(shape: tuple[int, ...]) -> Any:
        return rng.choice([-1.0, 1.0], shape) * rng.uniform(1.0, 4.0, shape)

    return [
        Sample((rng.uniform(-40, 40, a), divisor(b)))
        for a, b in [((), ()), ((33,), (33,)), ((4, 1, 5), (3, 1)), ((0, 3), (1, 3))]
    ] + [Sample((rng.uniform(-40, 40, (5,)), 3.0)), Sample((7.0, divisor((5,))))]


floor_divide = elementwise(
    "floor_divide", _floor_divide, "Largest integer not above `x / y`.", operand="numeric", decompose=lambda x, y: _common(_floor_divide_decomposed, x, y),
    samples=_nonzero_samples,
)  # fmt: skip


def _remainder(x: Any, y: Any) -> Any:
    return np.remainder(x, y)


def _common(function: Callable[..., Any], x: Any, y: Any) -> Any:
    """Apply `function` to `x` and `y` cast to their common dtype, so that it may branch on the kind."""
    operand = operand_dtype("add", tuple(_spec(v) for v in (x, y)))
    return function(*[v if not hasattr(v, "dtype") or v.dtype is operand else v.cast(dtype=operand) for v in (x, y)])


def _spec(value: Any) -> Any:
    if hasattr(value, "spec"):
        return value.spec
    kind = dtypes.bool_ if isinstance(value, bool) else dtypes.int64 if isinstance(value, int) else dtypes.float32
    return ScalarSpec(kind)


remainder = elementwise(
    "remainder", _remainder, "Remainder of `x / y` with the sign of `y`, as Python's %.", operand="numeric",
    decompose=lambda x, y: _common(lambda a, b: a - floor_divide(a, b) * b, x, y),
    gradient=lambda g, x, y, needs: (g, -g * floor_divide(x, y) if needs[1] else None),
    # An exact remainder loses up to |x/y| units when it is formed as x - floor(x/y)*y.
    samples=_nonzero_samples, tolerance=Tolerance(2.0, floor=40.0),
)  # fmt: skip

negative = elementwise("negative", np.negative, "`-x`.", operand="numeric", gradient=lambda g: -g)
abs_ = elementwise(
    "abs", np.abs, "Absolute value.", operand="numeric", decompose=lambda x: where(less(x, 0), -x, x + 0),
    gradient=lambda g, x: g * sign(x), domain=((0.25, 4.0),),
)  # fmt: skip
sign = elementwise(
    "sign", np.sign, "-1, 0 or 1 by the sign of `x`; NaN stays NaN.", operand="numeric",
    decompose=lambda x: where(equal(x, x), where(less(0, x), 1, where(less(x, 0), -1, 0)).cast(dtype=x.dtype), x),
    gradient=lambda g: g * 0,
)  # fmt: skip
square = elementwise("square", np.square, "`x * x`.", operand="numeric", decompose=lambda x: x * x, gradient=lambda g, x: g * (x * 2))
reciprocal = elementwise(
    "reciprocal", np.reciprocal, "`1 / x`.", operand="float", decompose=lambda x: 1 / x,
    gradient=lambda g, out: -g * square(out), domain=((0.25, 4.0),),
)  # fmt: skip
maximum = elementwise(
    "maximum", np.maximum, "The larger of `x` and `y`; NaN if either is NaN.",
    gradient=lambda g, x, y: _extremum_gradient(g, x, y, less),
)  # fmt: skip
minimum = elementwise(
    "minimum", np.minimum, "The smaller of `x` and `y`; NaN if either is NaN.",
    decompose=lambda x, y: _common(lambda a, b: where(logical_or(less(a, b), not_equal(a, a)), a, b), x, y),
    gradient=lambda g, x, y: _extremum_gradient(g, x, y, lambda a, b: less(b, a)),
)  # fmt: skip


def _extremum_gradient(g: Any, x: Any, y: Any, loses: Callable[..., Any]) -> Any:
    """Half each where equal, as PyTorch."""
    half = where(equal(x, y), g * 0.5, 0.0)
    return where(loses(y, x), g, half), where(loses(x, y), g, half)


# --- exponentials, logarithms, roots --------------------------------------------------------------------------------

exp = elementwise("exp", np.exp, "e to the power `x`.", operand="float", gradient=lambda g, out: g * out)
exp2 = elementwise(
    "exp2", np.exp2, "2 to the power `x`.", operand="float", decompose=lambda x: exp(x * math.log(2)),
    gradient=lambda g, out: g * (out * math.log(2)), tolerance=Tolerance(8.0),
)  # fmt: skip


def _expm1(x: Any) -> Any:
    u = exp(x)
    exact = equal(u, 1.0)
    # Kahan: (u - 1) x / log u cancels the rounding error of u.
    corrected = (u - 1.0) * (x / where(exact, 1.0, log(u)))
    far = logical_or(less(x, -20.0), less(20.0, x))
    return where(far, u - 1.0, where(exact, x, corrected))


expm1 = elementwise("expm1", np.expm1, "`exp(x) - 1`, accurate near 0.", operand="float", decompose=_expm1, gradient=lambda g, out: g * (out + 1.0), tolerance=Tolerance(8.0))
log = elementwise("log", np.log, "Natural logarithm.", operand="float", gradient=lambda g, x: g / x, domain=((0.05, 8.0),))
log2 = elementwise("log2", np.log2, "Logarithm to base 2.", operand="float", decompose=lambda x: log(x) * (1 / math.log(2)), gradient=lambda g, x: g / (x * math.log(2)), domain=((0.05, 8.0),))
log10 = elementwise("log10", np.log10, "Logarithm to base 10.", operand="float", decompose=lambda x: log(x) * (1 / math.log(10)), gradient=lambda g, x: g / (x * math.log(10)), domain=((0.05, 8.0),))


def _log1p(x: Any) -> Any:
    u = x + 1.0
    exact = equal(u, 1.0)
    corrected = log(u) * (x / where(exact, 1.0, u - 1.0))
    return where(exact, x, where(equal(u, math.inf), u, corrected))


log1p = elementwise("log1p", np.log1p, "`log(1 + x)`, accurate near 0.", operand="float", decompose=_log1p, gradient=lambda g, x: g / (x + 1.0), domain=((-0.9, 8.0),), tolerance=Tolerance(8.0))
sqrt = elementwise("sqrt", np.sqrt, "Square root.", operand="float", gradient=lambda g, out: g * 0.5 / out, domain=((0.05, 8.0),))
rsqrt = elementwise("rsqrt", lambda x: 1 / np.sqrt(x), "`1 / sqrt(x)`.", operand="float", decompose=lambda x: 1.0 / sqrt(x), gradient=lambda g, x, out: g * (out / x) * -0.5, domain=((0.05, 8.0),))


def _pow(x: Any, y: Any) -> Any:
    return np.power(x, y)


def _pow_decomposed(x: Any, y: Any) -> Any:
    kind = next(v.dtype.kind for v in (x, y) if hasattr(v, "dtype"))
    if kind != "float":
        return _integer_pow(x, y)
    size = exp(y * log(abs_(x) if hasattr(x, "dtype") else math.fabs(x))) if not _is_zero(x) else exp(y * -math.inf)
    if not hasattr(x, "dtype"):
        x = y * 0 + x
    if not hasattr(y, "dtype"):
        y = x * 0 + y
    whole = equal(floor(y), y)
    odd = logical_and(whole, not_equal(floor(y * 0.5) * 2.0, y))
    signed = where(less(x, 0.0), where(whole, where(odd, -size, size), math.nan), size)
    return where(logical_or(equal(y, 0.0), equal(x, 1.0)), 1.0, signed)


def _is_zero(x: Any) -> bool:
    return not hasattr(x, "dtype") and x == 0




def _integer_pow(x: Any, y: Any) -> Any:
    """Square and multiply over the bits of the exponent; negative exponents give 0, as an integer division would."""
    base = x if hasattr(x, "dtype") else y * 0 + x
    exponent = y if hasattr(y, "dtype") else x * 0 + y
    result = exponent * 0 + 1
    negative_exponent = less(exponent, 0)
    for _ in range(exponent.dtype.bits):
        result = where(not_equal(bitwise_and(exponent, 1), 0), result * base, result)
        base = base * base
        exponent = bitwise_right_shift(exponent, 1)
    return where(negative_exponent, 0, result)


def _pow_gradient(g: Any, x: Any, y: Any, out: Any, needs: tuple[bool, ...]) -> Any:
    dx = g * (y * pow_(x, y - 1)) if needs[0] else None
    # At x = 0 the derivative in y is 0 for y >= 0, where log would give NaN.
    dy = g * where(equal(x, 0.0), 0.0, out * log(where(equal(x, 0.0), 1.0, x))) if needs[1] else None
    return dx, dy


def _pow_samples(rng: np.random.Generator) -> list[Sample]:
    pairs = [((), ()), ((33,), (33,)), ((4, 1, 5), (3, 1)), ((0, 3), (1, 3))]
    out = [Sample((rng.uniform(0.25, 3, a), rng.uniform(-2, 3, b))) for a, b in pairs]
    grid = np.array([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, np.inf, np.nan])
    a, b = np.meshgrid(grid, np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0]))
    return [*out, Sample((rng.uniform(0.25, 3, (5,)), 2.0)), Sample((2.0, rng.uniform(-2, 3, (5,)))), Sample((a.reshape(-1), b.reshape(-1)), special=True)]


pow_ = elementwise(
    "pow", _pow, "`x` to the power `y`.", operand="numeric", decompose=lambda x, y: _common(_pow_decomposed, x, y),
    gradient=_pow_gradient, samples=_pow_samples,
    # exp(y log x): a relative error of |y log x| units enters through the exponent; |y log x| < 5 on the samples.
    tolerance=Tolerance(16.0), dtypes_=dtypes.FLOATS,
)  # fmt: skip

# --- trigonometry ---------------------------------------------------------------------------------------------------

_UNIT = Tolerance(8.0, floor=1.0)
"""Units at magnitude 1: near a zero of a periodic function the rounding of the argument dominates."""

sin = elementwise("sin", np.sin, "Sine of `x` radians.", operand="float", gradient=lambda g, x: g * cos(x), tolerance=Tolerance(4.0, floor=1.0))
cos = elementwise("cos", np.cos, "Cosine of `x` radians.", operand="float", decompose=lambda x: 1.0 - square(sin(x * 0.5)) * 2.0, gradient=lambda g, x: -g * sin(x), tolerance=_UNIT)
tan = elementwise("tan", np.tan, "Tangent of `x` radians.", operand="float", decompose=lambda x: sin(x) / cos(x), gradient=lambda g, out: g * (square(out) + 1.0), domain=((-1.3, 1.3),), tolerance=Tolerance(32.0, floor=1.0))
asin = elementwise("asin", np.arcsin, "Inverse sine, in radians.", operand="float", decompose=lambda x: atan(x * rsqrt((1.0 - x) * (x + 1.0))), gradient=lambda g, x: g * rsqrt(1.0 - square(x)), domain=((-0.95, 0.95),), tolerance=Tolerance(8.0))
acos = elementwise("acos", np.arccos, "Inverse cosine, in radians.", operand="float", decompose=lambda x: atan(sqrt((1.0 - x) / (x + 1.0))) * 2.0, gradient=lambda g, x: -g * rsqrt(1.0 - square(x)), domain=((-0.95, 0.95),), tolerance=Tolerance(8.0))
atan = elementwise("atan", np.arctan, "Inverse tangent, in radians.", operand="float", decompose=lambda x: polynomials.atan(x, where, less, abs_), gradient=lambda g, x: g / (square(x) + 1.0), tolerance=Tolerance(8.0))


def _atan2(y: Any, x: Any) -> Any:
    y, x = (v if hasattr(v, "dtype") else other * 0 + v for v, other in ((y, x), (x, y)))
    swap = less(abs_(x), abs_(y))
    small, large = where(swap, abs_(x), abs_(y)), where(swap, abs_(y), abs_(x))
    ratio = where(equal(small, large), where(equal(large, 0.0), 0.0, 1.0), small / large)
    angle = atan(where(logical_or(not_equal(x, x), not_equal(y, y)), math.nan, ratio))
    angle = where(swap, math.pi / 2 - angle, angle)
    # 1/x tells -0 from 0, which the comparison with 0 does not.
    angle = where(logical_or(less(x, 0.0), less(1.0 / x, 0.0)), math.pi - angle, angle)
    return where(logical_or(less(y, 0.0), less(1.0 / y, 0.0)), -angle, angle)


atan2 = elementwise(
    "atan2", np.arctan2, "Angle of the point (y, x), in radians.", operand="float", inputs=("y", "x"), decompose=_atan2,
    gradient=lambda g, y, x: (g * (x / (square(x) + square(y))), -g * (y / (square(x) + square(y)))),
    domain=((0.3, 4.0), (-4.0, 4.0)), tolerance=Tolerance(8.0, floor=1.0),
)  # fmt: skip


def _sinh(x: Any) -> Any:
    e = expm1(abs_(x))
    # Beyond 20 the second term is lost; e / (e + 1) would be inf / inf at the far end.
    half = where(less(20.0, abs_(x)), e, e + e / (e + 1.0)) * 0.5
    return where(less(x, 0.0), -half, half)


sinh = elementwise("sinh", np.sinh, "Hyperbolic sine.", operand="float", decompose=_sinh, gradient=lambda g, x: g * cosh(x), tolerance=Tolerance(12.0))
cosh = elementwise("cosh", np.cosh, "Hyperbolic cosine.", operand="float", decompose=lambda x: (exp(x) + exp(-x)) * 0.5, gradient=lambda g, x: g * sinh(x), tolerance=Tolerance(8.0))


def _tanh(x: Any) -> Any:
    e = expm1(abs_(x) * -2.0)
    half = -e / (e + 2.0)
    return where(less(x, 0.0), -half, half)


tanh_grad = elementwise("tanh_grad", lambda g, out: g * (1 - out * out), "Gradient of tanh from its result.", operand="float", inputs=("grad", "y"), decompose=lambda g, out: g * (1.0 - square(out)), domain=((-2.0, 2.0), (-0.95, 0.95)), special=False, tolerance=Tolerance(4.0, floor=2.0))
tanh = elementwise("tanh", np.tanh, "Hyperbolic tangent.", operand="float", decompose=_tanh, gradient=lambda g, out: tanh_grad(g, out), tolerance=Tolerance(12.0))

# --- rounding -------------------------------------------------------------------------------------------------------

floor = elementwise("floor", np.floor, "Largest integer not above `x`.", operand="numeric", gradient=lambda g: g * 0, dtypes_=dtypes.FLOATS)
ceil = elementwise("ceil", np.ceil, "Smallest integer not below `x`.", operand="numeric", decompose=lambda x: -floor(-x), gradient=lambda g: g * 0, dtypes_=dtypes.FLOATS)
trunc = elementwise("trunc", np.trunc, "`x` without its fraction.", operand="numeric", decompose=lambda x: where(less(x, 0.0), ceil(x), floor(x)), gradient=lambda g: g * 0, dtypes_=dtypes.FLOATS)


def _round(x: Any) -> Any:
    low = floor(x)
    part = x - low
    even = equal(floor(low * 0.5) * 2.0, low)
    up = logical_or(less(0.5, part), logical_and(equal(part, 0.5), logical_not(even)))
    return where(isfinite(x), where(up, low + 1.0, low), x)


round_ = elementwise("round", np.round, "Nearest integer, halves to even.", operand="numeric", inputs=("x",), decompose=_round, gradient=lambda g: g * 0, dtypes_=dtypes.FLOATS)

# --- comparison and logic -------------------------------------------------------------------------------------------

_B = dtypes.bool_
equal = elementwise("equal", np.equal, "True where `x == y`.", result=_B)
not_equal = elementwise("not_equal", np.not_equal, "True where `x != y`.", result=_B, decompose=lambda x, y: logical_not(equal(x, y)))
less = elementwise("less", np.less, "True where `x < y`.", result=_B)
greater = elementwise("greater", np.greater, "True where `x > y`.", result=_B, decompose=lambda x, y: less(y, x))
less_equal = elementwise("less_equal", np.less_equal, "True where `x <= y`.", result=_B, decompose=lambda x, y: logical_or(less(x, y), equal(x, y)))
greater_equal = elementwise("greater_equal", np.greater_equal, "True where `x >= y`.", result=_B, decompose=lambda x, y: logical_or(less(y, x), equal(x, y)))
logical_and = elementwise("logical_and", np.logical_and, "True where both are non-zero.", operand="bool", result=_B)
logical_or = elementwise("logical_or", np.logical_or, "True where either is non-zero.", operand="bool", result=_B)
logical_xor = elementwise("logical_xor", np.logical_xor, "True where exactly one is non-zero.", operand="bool", result=_B)
logical_not = elementwise("logical_not", np.logical_not, "True where `x` is zero.", operand="bool", result=_B)
isnan = elementwise("isnan", np.isnan, "True where `x` is NaN.", result=_B, decompose=lambda x: not_equal(x, x), dtypes_=dtypes.FLOATS)
isinf = elementwise("isinf", np.isinf, "True where `x` is infinite.", result=_B, decompose=lambda x: equal(abs_(x), math.inf) if x.dtype.kind == "float" else not_equal(x, x), dtypes_=dtypes.FLOATS)
isfinite = elementwise("isfinite", np.isfinite, "True where `x` is neither infinite nor NaN.", result=_B, decompose=lambda x: less(abs_(x), math.inf) if x.dtype.kind == "float" else equal(x, x), dtypes_=dtypes.FLOATS)


def _bit_samples(rng: np.random.Generator) -> list[Sample]:
    pairs = [((), ()), ((33,), (33,)), ((4, 1, 5), (3, 1)), ((0, 3), (1, 3))]
    return [Sample((rng.integers(0, 100, a), rng.integers(0, 100, b))) for a, b in pairs] + [Sample((rng.integers(0, 100, (5,)), 6))]


def _shift_samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((rng.integers(0, 100, a), rng.integers(0, 7, b))) for a, b in [((33,), (33,)), ((4, 1), (3,))]]


bitwise_and = elementwise("bitwise_and", np.bitwise_and, "Bits set in both.", operand="integral", samples=_bit_samples)
bitwise_or = elementwise("bitwise_or", np.bitwise_or, "Bits set in either.", operand="integral", samples=_bit_samples)
bitwise_xor = elementwise("bitwise_xor", np.bitwise_xor, "Bits set in exactly one.", operand="integral", samples=_bit_samples)
bitwise_invert = elementwise("bitwise_invert", np.invert, "All bits flipped.", operand="integral", samples=lambda rng: [Sample((rng.integers(0, 100, s),)) for s in [(), (33,), (3, 4)]])
bitwise_left_shift = elementwise("bitwise_left_shift", np.left_shift, "`x` times 2 to the power `y`, in bits.", operand="integral", samples=_shift_samples, dtypes_=dtypes.INTEGERS)
bitwise_right_shift = elementwise("bitwise_right_shift", np.right_shift, "`x` shifted right by `y` bits; the sign is kept.", operand="integral", samples=_shift_samples, dtypes_=dtypes.INTEGERS)

# --- selection ------------------------------------------------------------------------------------------------------

where = elementwise("where", np.where, "`x` where `cond` is true, else `y`.", inputs=("cond", "x", "y"), gradient=lambda g, cond: (None, where(cond, g, 0), where(cond, 0, g)))


def _clip(x: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    if min is not None:
        x = np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


def _clip_decomposed(x: Any, low: Any, high: Any) -> Any:
    if low is not None:
        x = maximum(x, low)
    return x + 0 if low is None and high is None else x if high is None else minimum(x, high)


def _clip_gradient(g: Any, x: Any, min: Any, max: Any) -> Any:  # noqa: A002
    dx = g
    dmin = dmax = None
    if max is not None:
        above = greater(x, max)
        dx, dmax = where(above, 0, dx), where(above, g, 0)
    if min is not None:
        below = less(x, min)
        dx, dmin = where(below, 0, dx), where(below, g, 0)
    return dx, dmin, dmax


clip = elementwise(
    "clip", _clip, "`x` limited to [`min`, `max`]; either bound may be left out.", inputs=("x", "min", "max"),
    optional=frozenset({"min", "max"}), decompose=_clip_decomposed, gradient=_clip_gradient, operand="numeric",
    samples=lambda rng: [
        Sample((rng.uniform(-4, 4, (33,)), -1.0, 1.0)),
        Sample((rng.uniform(-4, 4, (3, 5)), None, 1.0)),
        Sample((rng.uniform(-4, 4, (3, 5)), rng.uniform(-2, -1, (5,)), None)),
        Sample((np.array([np.nan, np.inf, -np.inf, 0.0]), -1.0, 1.0), special=True),
    ],
)  # fmt: skip

# --- activations ----------------------------------------------------------------------------------------------------

_KINK = ((0.1, 4.0),)


def _two_sided(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Values away from 0, where these functions have a kink that finite differences cannot cross."""
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.1, 4.0, shape)


def _kinked(rng: np.random.Generator) -> list[Sample]:
    shapes: list[tuple[int, ...]] = [(), (0,), (33,), (3, 1, 5)]
    return [Sample((_two_sided(rng, s),)) for s in shapes] + [Sample((_SPECIAL,), special=True)]


relu_grad = elementwise("relu_grad", lambda g, out: np.where(out > 0, g, 0), "Gradient of relu from its result.", inputs=("grad", "y"), decompose=lambda g, out: where(less(0, out), g, 0), gradient=lambda g, y: (relu_grad(g, y), None), special=False, operand="numeric", dtypes_=dtypes.FLOATS)
relu = elementwise("relu", lambda x: np.maximum(x, np.zeros_like(x)), "`max(x, 0)`.", operand="numeric", decompose=lambda x: maximum(x, 0), gradient=lambda g, out: relu_grad(g, out), samples=_kinked)
leaky_relu = elementwise(
    "leaky_relu", lambda x, *, negative_slope=0.01: np.where(x > 0, x, x * negative_slope), "`x` if positive, else `negative_slope * x`.",
    operand="float", inputs=("x",), params={"negative_slope": 0.01},
    decompose=lambda x, *, negative_slope: where(less(0.0, x), x, x * negative_slope),
    gradient=lambda g, x, *, negative_slope: where(less(0.0, x), g, g * negative_slope), samples=_kinked,
)  # fmt: skip
elu = elementwise(
    "elu", lambda x, *, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))), "`x` if positive, else `alpha * (exp(x) - 1)`.",
    operand="float", inputs=("x",), params={"alpha": 1.0},
    decompose=lambda x, *, alpha: where(less(0.0, x), x, expm1(minimum(x, 0.0)) * alpha),
    gradient=lambda g, x, *, alpha: where(less(0.0, x), g, g * exp(minimum(x, 0.0)) * alpha), samples=_kinked, tolerance=Tolerance(8.0),
)  # fmt: skip


def _np_sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), np.where(np.isnan(x), x, e / (1 + e)))


sigmoid_grad = elementwise("sigmoid_grad", lambda g, out: g * out * (1 - out), "Gradient of sigmoid from its result.", operand="float", inputs=("grad", "y"), decompose=lambda g, out: g * (out * (1.0 - out)), domain=((-2.0, 2.0), (0.05, 0.95)), special=False)
sigmoid = elementwise("sigmoid", _np_sigmoid, "Logistic function `1 / (1 + exp(-x))`.", operand="float", decompose=lambda x: 1.0 / (exp(-x) + 1.0), gradient=lambda g, out: sigmoid_grad(g, out), tolerance=Tolerance(8.0))
silu_grad = elementwise(
    "silu_grad", lambda g, x: g * _np_sigmoid(x) * (1 + x * (1 - _np_sigmoid(x))), "Gradient of silu.", operand="float", inputs=("grad", "x"),
    decompose=lambda g, x: g * (sigmoid(x) * (x * (1.0 - sigmoid(x)) + 1.0)), special=False, tolerance=Tolerance(12.0, floor=1.0),
)  # fmt: skip
silu = elementwise("silu", lambda x: x * _np_sigmoid(x), "`x * sigmoid(x)`, also called swish.", operand="float", decompose=lambda x: x * sigmoid(x), gradient=lambda g, x: silu_grad(g, x), special=False, tolerance=Tolerance(8.0))


def _np_softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


softplus = elementwise("softplus", _np_softplus, "`log(1 + exp(x))` without overflow.", operand="float", decompose=lambda x: maximum(x, 0.0) + log1p(exp(-abs_(x))), gradient=lambda g, x: g * sigmoid(x), special=False, tolerance=Tolerance(8.0))

_np_erf = np.vectorize(math.erf, otypes=[np.float64])
"""The C library's erf, which NumPy does not offer."""
_erf_tolerance = Tolerance(12.0)


def _reference_erf(x: Any) -> Any:
    return _np_erf(np.asarray(x, np.float64))


erf = elementwise("erf", _reference_erf, "Error function.", operand="float", decompose=lambda x: polynomials.erf(x, where, less, exp, abs_), gradient=lambda g, x: g * (exp(-square(x)) * (2 / math.sqrt(math.pi))), tolerance=_erf_tolerance)

_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _np_gelu(x: Any, *, approximate: str = "none") -> Any:
    x = np.asarray(x)
    wide = x.astype(np.float64)
    if approximate == "tanh":
        return 0.5 * wide * (1 + np.tanh(_SQRT_2_OVER_PI * (wide + _CUBIC * wide**3)))
    return 0.5 * wide * (1 + _np_erf(wide / math.sqrt(2)))


def _gelu(x: Any, *, approximate: str) -> Any:
    if approximate == "tanh":
        return x * sigmoid((x + square(x) * x * _CUBIC) * (2 * _SQRT_2_OVER_PI))
    return x * (erf(x * math.sqrt(0.5)) + 1.0) * 0.5


def _np_gelu_grad(g: Any, x: Any, *, approximate: str = "none") -> Any:
    x = np.asarray(x, np.float64)
    if approximate == "tanh":
        t = np.tanh(_SQRT_2_OVER_PI * (x + _CUBIC * x**3))
        slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _SQRT_2_OVER_PI * (1 + 3 * _CUBIC * x * x)
    else:
        slope = 0.5 * (1 + _np_erf(x / math.sqrt(2))) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return g * slope


def _gelu_grad(g: Any, x: Any, *, approximate: str) -> Any:
    if approximate == "tanh":
        s = sigmoid((x + square(x) * x * _CUBIC) * (2 * _SQRT_2_OVER_PI))
        inner = (square(x) * (3 * _CUBIC) + 1.0) * (2 * _SQRT_2_OVER_PI)
        return g * (s + x * s * (1.0 - s) * inner)
    density = exp(square(x) * -0.5) * (1 / math.sqrt(2 * math.pi))
    return g * ((erf(x * math.sqrt(0.5)) + 1.0) * 0.5 + x * density)


def _gelu_samples(rng: np.random.Generator) -> list[Sample]:
    shapes: list[tuple[int, ...]] = [(), (0,), (33,), (3, 1, 5)]
    return [Sample((rng.uniform(-4, 4, s),), {"approximate": a}) for s in shapes for a in ("none", "tanh")]


def _gelu_grad_samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((rng.uniform(-2, 2, (33,)), rng.uniform(-4, 4, (33,))), {"approximate": a}) for a in ("none", "tanh")]


gelu_grad = elementwise(
    "gelu_grad", _np_gelu_grad, "Gradient of gelu.", operand="float", inputs=("grad", "x"), params={"approximate": "none"},
    decompose=_gelu_grad, samples=_gelu_grad_samples, tolerance=Tolerance(8.0, floor=2.0),
)  # fmt: skip
gelu = elementwise(
    "gelu", _np_gelu, "Gaussian error linear unit, exact or by tanh (`approximate`). Source: Hendrycks and Gimpel, arXiv:1606.08415.",
    operand="float", inputs=("x",), params={"approximate": "none"}, decompose=_gelu, samples=_gelu_samples,
    gradient=lambda g, x, *, approximate: gelu_grad(g, x, approximate),
    # 1 + erf cancels for negative x: the absolute error is that of numbers near 1, times |x| / 2.
    tolerance=Tolerance(8.0, floor=2.0), flops=12,
)  # fmt: skip

# --- casts ----------------------------------------------------------------------------------------------------------


def _infer_cast(specs: Specs, params: dict[str, Any]) -> list[Output]:
    params["dtype"] = dtypes.as_dtype(params["dtype"])
    assert specs[0] is not None
    return [(params["dtype"], specs[0].shape)]


def _cast_reference(x: Any, *, dtype: Any) -> Any:
    return np.asarray(x).astype(dtypes.as_dtype(dtype).numpy)


def _cast_core(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall:
    spec, (output,) = specs[0], outputs
    assert isinstance(spec, Spec)
    return CoreCall("copy", backend.copy, (CoreInput(spec.dtype, spec.shape, exact=True),), output.dtype, output.shape, True)


_OPERANDS["cast"] = "cast"
cast = OPS.declare(
    OpDef(
        name="cast", family="elementwise", inputs=("x",), optional=frozenset(), variadic=False, outputs=("out",),
        doc="`x` in another dtype: floats truncate towards zero, integers wrap, anything non-zero is True.",
        params={"dtype": inspect.Parameter.empty}, infer=_infer_cast, reference=_cast_reference, core=_cast_core, widen=False,
        gradient=lambda g, x_spec: g.cast(dtype=x_spec.dtype) if x_spec.dtype.kind == "float" else None,
        samples=lambda rng: [
            Sample((rng.uniform(0, 100, s),), {"dtype": d}, differentiable=d is dtypes.float64)
            for s in [(), (33,), (3, 4)] for d in dtypes.ALL
        ],
        dtypes=dtypes.ALL, tolerance=Tolerance(0.5),
    )
)  # fmt: skip

ELEMENTWISE: tuple[OpDef, ...] = tuple(op for op in OPS if op.family == "elementwise")
tensors_of = tensors
