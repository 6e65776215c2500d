"""Reductions over any axes, in at least float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes, layout
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, normalize_axes
from polyhal.hal.ops.composite import composite
from polyhal.hal.ops.layout.creation import arange
from polyhal.hal.ops.layout.movement import permute, reshape
from polyhal.hal.ops.opdef import OPS, CoreCall, CoreInput, ErrorSample, OpDef, Output, Params, Sample, Specs, Tolerance
from polyhal.hal.ops.pointwise.exponential import exp, log
from polyhal.hal.ops.pointwise.logic import bitwise_invert, equal, less, logical_not, logical_or, not_equal
from polyhal.hal.ops.pointwise.rounding import isfinite
from polyhal.hal.ops.pointwise.selection import where
from polyhal.hal.ops.traits import Autocast, Trait
from polyhal.hal.protocol import REQUIRED_REDUCE, ComputeBackend, Declined

Axis = int | tuple[int, ...] | None


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """`shape` without `axes`, or with them at length 1."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)


def _infer(name: str, result: Callable[[DType], DType], empty: bool) -> Callable[[Specs, dict[str, Any]], list[Output]]:
    def infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
        spec = specs[0]
        assert isinstance(spec, Spec)
        axes = normalize_axes(params["axis"], spec.ndim)
        shape: tuple[int, ...] = reduced_shape(spec.shape, axes, params["keepdims"])
        if not empty and 0 not in shape and not math.prod(spec.shape[a] for a in axes):
            raise ValueError(f"the {name} of no elements is undefined")
        params["axis"] = axes
        params["keepdims"] = bool(params["keepdims"])
        return [(result(spec.dtype), shape)]

    return infer


def last_axes(spec: Spec, axes: tuple[int, ...]) -> layout.View:
    """The view with `axes` moved to the end."""
    return layout.permute(spec, (*(i for i in range(spec.ndim) if i not in axes), *axes))


def _core(name: str) -> Callable[[ComputeBackend, Specs, tuple[Spec, ...], Params], CoreCall | Declined]:
    def core(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall | Declined:
        spec, (output,) = specs[0], outputs
        assert isinstance(spec, Spec)
        if name not in REQUIRED_REDUCE | backend.capabilities.reduce:
            return Declined(f"the backend has no {name} reduction")
        if spec.dtype.kind == "float" and spec.dtype is not output.dtype:
            return Declined("the dtype changes")
        n = spec.size // max(output.size, 1)
        operand = output.dtype if name in ("sum", "prod") else spec.dtype
        view = last_axes(spec, params["axis"])
        return CoreCall(
            name,
            lambda x, out: backend.reduce(name, x, out),
            (CoreInput(operand, (output.size, n), view),),
            operand,
            (output.size,),
        )

    return core


def terms(specs: Specs, params: Params) -> int:
    """How many elements go into each result."""
    spec = specs[0]
    assert isinstance(spec, Spec)
    return math.prod(spec.shape[a] for a in normalize_axes(params.get("axis"), spec.ndim))


def _samples(low: float, high: float, empty: bool) -> Callable[[np.random.Generator], list[Sample]]:
    def samples(rng: np.random.Generator) -> list[Sample]:
        def draw(*shape: int) -> Any:
            return rng.uniform(low, high, shape)

        cases: list[tuple[Any, Axis, bool]] = [
            (draw(7), None, False),
            (draw(3, 5), 0, False),
            (draw(3, 5), -1, True),
            (draw(2, 3, 4), (0, 2), False),
            (draw(2, 3, 4), 1, False),
            (draw(1), None, True),
            (draw(), None, False),
            (draw(4, 300), 1, False),
            (draw(300, 4), 0, False),
            (draw(2, 3, 2, 3), (1, 3), True),
        ]
        if empty:
            cases += [(draw(0), None, False), (draw(0, 3), 0, False), (draw(3, 0), 0, False)]
        return [Sample((x,), {"axis": a, "keepdims": k}) for x, a, k in cases]

    return samples


_ERRORS = [
    ErrorSample((np.zeros((2, 3)),), {"axis": 2}, ValueError, "axis 2 is out of range"),
    ErrorSample((np.zeros((2, 3)),), {"axis": (0, 0)}, ValueError, "twice"),
]


def reduction(
    name: str,
    reference: Callable[..., Any],
    doc: str,
    *,
    result: Callable[[DType], DType],
    decompose: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    core: bool = False,
    empty: bool = False,
    params: dict[str, Any] | None = None,
    domain: tuple[float, float] = (-2.0, 2.0),
    dtypes_: tuple[DType, ...] = dtypes.FLOATS + dtypes.INTEGERS,
    samples: Callable[[np.random.Generator], Sequence[Sample]] | None = None,
    tolerance: Tolerance | None = None,
    traits: Trait = Trait.NONE,
    autocast: Autocast = Autocast.INHERIT,
    spellings: Sequence[Callable[..., Any]] = (),
) -> Callable[..., Any]:
    """Declare a reduction of one tensor with `axis` and `keepdims`."""
    return OPS.declare(
        OpDef(
            name=name,
            family="reduction",
            doc=doc,
            inputs=("x",),
            optional=frozenset(),
            variadic=False,
            params={"axis": None, "keepdims": False, **(params or {})},
            outputs=("out",),
            infer=_infer(name, result, empty),
            reference=reference,
            decompose=decompose,
            gradient=gradient,
            core=_core(name) if core else None,
            samples=samples or _samples(*domain, empty),
            errors=_ERRORS,
            dtypes=dtypes_,
            tolerance=tolerance or Tolerance(1.0, terms=terms),
            flops=lambda specs, outs, params: specs[0].size,  # type: ignore[union-attr]
            traits=traits,
            autocast=autocast,
            spellings=spellings,
        )
    )


def _same(d: DType) -> DType:
    return d


def _summed(d: DType) -> DType:
    return d if d.kind == "float" else dtypes.uint64 if d.kind == "uint" else dtypes.int64


def _averaged(d: DType) -> DType:
    return dtypes.to_float(d)


def spread(g: Any, x_spec: Spec, axis: Axis, keepdims: bool) -> Any:
    """A reduction's result or gradient in the shape that broadcasts against its input."""
    if keepdims:
        return g
    return reshape(g, reduced_shape(x_spec.shape, normalize_axes(axis, x_spec.ndim), True))


def _sum(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    return np.sum(x, axis=axis, keepdims=keepdims)


sum_ = reduction(
    "sum",
    _sum,
    "Sum over `axis` (all axes by default). Integers and bool sum in 64 bits.",
    result=_summed,
    core=True,
    empty=True,
    gradient=lambda g, x_spec, *, axis, keepdims: spread(g, x_spec, axis, keepdims).broadcast_to(x_spec.shape),
    dtypes_=dtypes.ALL,
    traits=Trait.FUSIBLE_REDUCTION,
    autocast=Autocast.FLOAT32,
)


def _prod_gradient(g: Any, x: Any, *, axis: Axis, keepdims: bool) -> Any:
    """Exact with zeros: a single zero receives the product of the others."""
    zero = equal(x, 0)
    filled = where(zero, 1, x)
    product, zeros = prod(filled, axis, True), sum_(zero, axis, True)
    others = where(equal(zeros, 0), product / filled, where(zero, where(equal(zeros, 1), product, 0), 0))
    return spread(g, x.ref.spec if hasattr(x, "ref") else x.spec, axis, keepdims) * others


prod = reduction(
    "prod",
    lambda x, *, axis=None, keepdims=False: np.prod(x, axis=axis, keepdims=keepdims),
    "Product over `axis`.",
    result=_summed,
    core=True,
    empty=True,
    gradient=_prod_gradient,
    domain=(0.8, 1.25),
    autocast=Autocast.FLOAT32,
)


def _count(x_spec: Spec, axis: Axis) -> int:
    return math.prod(x_spec.shape[a] for a in normalize_axes(axis, x_spec.ndim))


def _mean(x: Any, *, axis: Any, keepdims: bool) -> Any:
    x = x if x.dtype.kind == "float" else x.cast(dtype=dtypes.DEFAULT_FLOAT)
    return sum_(x, axis, keepdims) * (1.0 / max(_count(x.spec, axis), 1))


mean = reduction(
    "mean",
    lambda x, *, axis=None, keepdims=False: np.mean(x, axis=axis, keepdims=keepdims),
    "Arithmetic mean over `axis`.",
    result=_averaged,
    decompose=_mean,
    tolerance=Tolerance(3.0, terms=terms),
    gradient=lambda g, x_spec, *, axis, keepdims: (
        spread(g, x_spec, axis, keepdims) * (1.0 / max(_count(x_spec, axis), 1))
    ).broadcast_to(x_spec.shape),
    traits=Trait.FUSIBLE_REDUCTION,
    autocast=Autocast.FLOAT32,
)


def _var(x: Any, *, axis: Any, keepdims: bool, correction: float) -> Any:
    x = x if x.dtype.kind == "float" else x.cast(dtype=dtypes.DEFAULT_FLOAT)
    centred = x - mean(x, axis, True)
    divisor = _count(x.spec, axis) - correction
    return sum_(centred * centred, axis, keepdims) * (1.0 / divisor if divisor > 0 else math.inf)


def _var_gradient(g: Any, x: Any, x_spec: Spec, *, axis: Any, keepdims: bool, correction: float) -> Any:
    divisor = _count(x_spec, axis) - correction
    scale = 2.0 / divisor if divisor > 0 else math.inf
    return (spread(g, x_spec, axis, keepdims) * scale) * (x - mean(x, axis, True))


def _np_var(x: Any, *, axis: Any = None, keepdims: bool = False, correction: float = 0) -> Any:
    return np.var(x, axis=axis, keepdims=keepdims, ddof=correction)


def _var_samples(rng: np.random.Generator) -> list[Sample]:
    shapes: list[tuple[Any, Axis, float]] = [
        ((7,), None, 0),
        ((3, 5), 0, 1),
        ((3, 5), -1, 0),
        ((2, 3, 4), (0, 2), 1),
        ((4, 300), 1, 0),
    ]
    return [
        Sample((rng.uniform(-2, 2, s) + 1.0,), {"axis": a, "keepdims": bool(c), "correction": c}) for s, a, c in shapes
    ]


var = reduction(
    "var",
    _np_var,
    "Variance over `axis`, divided by n - `correction`.",
    result=_averaged,
    decompose=_var,
    gradient=_var_gradient,
    params={"correction": 0},
    samples=_var_samples,  # Equal elements have variance 0 but for the square of the mean's rounding.
    tolerance=Tolerance(8.0, floor=1e-3, terms=terms),
    autocast=Autocast.FLOAT32,
)


@composite()
def std(x: Any, axis: Axis = None, keepdims: bool = False, correction: float = 0) -> Any:
    """Standard deviation over `axis`, from the sum of squares divided by n - `correction`."""
    return var(x, axis, keepdims, correction).sqrt()


def _extremum_gradient(g: Any, x: Any, out: Any, x_spec: Spec, *, axis: Any, keepdims: bool) -> Any:
    """Shared equally between equal extremes."""
    chosen = equal(x, spread(out, x_spec, axis, keepdims)).cast(dtype=x.dtype)
    return chosen * (spread(g, x_spec, axis, keepdims) / sum_(chosen, axis, True))


max_ = reduction(
    "max",
    lambda x, *, axis=None, keepdims=False: np.max(x, axis=axis, keepdims=keepdims),
    "Largest element over `axis`; NaN if any is NaN.",
    result=_same,
    core=True,
    gradient=_extremum_gradient,
    dtypes_=dtypes.ALL,
    tolerance=Tolerance(0.0),
    traits=Trait.FUSIBLE_REDUCTION,
)


def _min(x: Any, *, axis: Any, keepdims: bool) -> Any:
    if x.dtype.kind == "float":
        return -max_(-x, axis, keepdims)
    # Flipping all bits reverses the order of integers of either sign, without overflow.
    return bitwise_invert(max_(bitwise_invert(x), axis, keepdims))


min_ = reduction(
    "min",
    lambda x, *, axis=None, keepdims=False: np.min(x, axis=axis, keepdims=keepdims),
    "Smallest element over `axis`; NaN if any is NaN.",
    result=_same,
    decompose=_min,
    gradient=_extremum_gradient,
    dtypes_=dtypes.ALL,
    tolerance=Tolerance(0.0),
    traits=Trait.FUSIBLE_REDUCTION,
)

any_ = reduction(
    "any",
    lambda x, *, axis=None, keepdims=False: np.any(x, axis=axis, keepdims=keepdims),
    "True where any element is non-zero.",
    result=lambda d: dtypes.bool_,
    empty=True,
    decompose=lambda x, *, axis, keepdims: max_(not_equal(x, 0), axis, keepdims),
    dtypes_=(dtypes.bool_, dtypes.float32, dtypes.int32),
)
all_ = reduction(
    "all",
    lambda x, *, axis=None, keepdims=False: np.all(x, axis=axis, keepdims=keepdims),
    "True where every element is non-zero.",
    result=lambda d: dtypes.bool_,
    empty=True,
    decompose=lambda x, *, axis, keepdims: logical_not(max_(equal(x, 0), axis, keepdims)),
    dtypes_=(dtypes.bool_, dtypes.float32, dtypes.int32),
)


def _arg_samples(rng: np.random.Generator) -> list[Sample]:
    cases: list[tuple[tuple[int, ...], Axis]] = [
        ((7,), None),
        ((3, 5), 0),
        ((3, 5), -1),
        ((2, 3, 4), 1),
        ((4, 300), 1),
        ((), None),
    ]
    drawn = [
        Sample((rng.integers(-9, 9, s).astype(np.float64),), {"axis": a, "keepdims": k})
        for s, a in cases
        for k in (False, True)
    ]
    return [*drawn, Sample((np.array([1.0, np.nan, np.inf, np.nan]),), {"axis": 0}, special=True)]


def _arg(name: str, best: Callable[..., Any]) -> Callable[..., Any]:
    """The first position of the extreme (or of a NaN), as the largest reversed position among the matches."""

    def decompose(x: Any, *, axis: Any, keepdims: bool) -> Any:
        axes = normalize_axes(axis, x.ndim)
        n = _count(x.spec, axes)
        matches = logical_or(equal(x, best(x, axes, True)), not_equal(x, x))
        rows = permute(matches, (*(i for i in range(x.ndim) if i not in axes), *axes))
        outer = reduced_shape(x.shape, axes, False)
        reversed_position = arange(n - 1, -1, -1, dtypes.int32)
        found = max_(where(reshape(rows, (*outer, n)), reversed_position, -1), -1, False)
        return reshape((n - 1) - found, reduced_shape(x.shape, axes, keepdims)).cast(dtype=dtypes.int64)

    return decompose


def _arg_infer(name: str) -> Callable[[Specs, dict[str, Any]], list[Output]]:
    inner = _infer(name, lambda d: dtypes.int64, empty=False)

    def infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
        axis = params["axis"]
        if axis is not None and not isinstance(axis, int) and len(axis) != 1 and len(axis) != specs[0].ndim:  # type: ignore[union-attr]
            raise ValueError(f"axis {axis} names several axes; expected one, or None for all")
        return inner(specs, params)

    return infer


def _np_arg(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        axis = None if axis is None or (isinstance(axis, tuple) and len(axis) == np.ndim(x)) else axis
        return function(x, axis=axis[0] if isinstance(axis, tuple) else axis, keepdims=keepdims)

    return reference


def _declare_arg(name: str, function: Callable[..., Any], best: Callable[..., Any], doc: str) -> Callable[..., Any]:
    call = reduction(
        name,
        _np_arg(function),
        doc,
        result=lambda d: dtypes.int64,
        decompose=_arg(name, best),
        samples=_arg_samples,
        tolerance=Tolerance(0.0),
    )
    OPS[name].infer = _arg_infer(name)
    OPS[name].widen = False
    return call


argmax = _declare_arg(
    "argmax", np.argmax, max_, "Position of the first largest element over one axis or all; a NaN counts as largest."
)
argmin = _declare_arg(
    "argmin", np.argmin, min_, "Position of the first smallest element over one axis or all; a NaN counts as smallest."
)


def _np_logsumexp(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    top = np.max(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    out = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return out if keepdims else np.squeeze(out, axis=axis)


def _logsumexp(x: Any, *, axis: Any, keepdims: bool) -> Any:
    x = x if x.dtype.kind == "float" else x.cast(dtype=dtypes.DEFAULT_FLOAT)
    top = max_(x, axis, True)
    top = where(isfinite(top), top, 0.0)
    out = log(sum_(exp(x - top), axis, True)) + top
    return out if keepdims else reshape(out, reduced_shape(x.shape, normalize_axes(axis, x.ndim), False))


logsumexp = reduction(
    "logsumexp",
    _np_logsumexp,
    "`log(sum_(exp(x)))` over `axis` without overflow.",
    result=_averaged,
    decompose=_logsumexp,
    gradient=lambda g, x, out, x_spec, *, axis, keepdims: (
        spread(g, x_spec, axis, keepdims) * exp(x - spread(out, x_spec, axis, keepdims))
    ),
    tolerance=Tolerance(8.0, floor=1.0, terms=terms),
    dtypes_=dtypes.FLOATS,
    autocast=Autocast.FLOAT32,
)

__all__ = ["Axis", "less", "reduced_shape", "spread", "terms"]
