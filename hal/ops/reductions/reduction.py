"""The constructor of reductions: one tensor in, with `axis` and `keepdims`, accumulated in at least float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from polyhal.hal import dtypes, layout
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, normalize_axes
from polyhal.hal.ops import batching
from polyhal.hal.ops.declare import (
    CoreCall,
    CoreInput,
    CoreMember,
    Decompose,
    ErrorSample,
    OpFunction,
    OpOptions,
    Output,
    Params,
    Sample,
    Samples,
    Specs,
    Strategy,
    Tolerance,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.views import reshape
from polyhal.hal.ops.tensor_like import TensorLike
from polyhal.hal.protocol import REQUIRED_REDUCE, ComputeBackend, Declined

Axis = int | tuple[int, ...] | None


def reduction(
    name: str,
    reference: Callable[..., Any],
    doc: str,
    *,
    result: Callable[[DType], DType],
    decompose: Callable[..., Any] | None = None,
    widen: bool = True,
    core: bool = False,
    empty: bool | Callable[[Params], bool] = False,
    one_axis: bool = False,
    domain: tuple[float, float] = (-2.0, 2.0),
    samples: Samples | None = None,
    **options: Unpack[OpOptions],
) -> OpFunction:
    """Declare a reduction of one tensor.

    `reference` takes the array, `axis` and `keepdims`. `result` gives the dtype of the result from that of the input.
    `core` runs it through `reduce` of the contract. `empty` allows reductions of no elements, for all parameters or for
    those of which it is true; `one_axis` allows one axis or all, not several. `decompose` and `widen` are those of the
    strategy `Decompose`. Samples are drawn from `domain` unless a function makes them.
    """
    lowering: tuple[Strategy, ...] = (CoreMember(_core_rule(name)),) if core else ()
    if decompose is not None:
        lowering = (*lowering, Decompose(decompose, widen=widen))
    options.setdefault("errors", _ERRORS)
    options.setdefault("batching", batching.reduction)
    options.setdefault("dtypes", dtypes.FLOATS + dtypes.INTEGERS)
    options.setdefault("tolerance", Tolerance(1.0, terms=reduced_terms))
    options.setdefault("flops", lambda specs, outs, params: first_tensor(specs).size)
    return declare(
        reference,
        name=name,
        doc=doc,
        family="reduction",
        infer=_infer_rule(name, result, empty, one_axis),
        lowering=lowering,
        samples=samples or _samples(*domain, empty is True),
        **options,
    )


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """`shape` without `axes`, or with them at length 1."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)


def element_count(spec: Spec, axis: Axis) -> int:
    """The number of elements of `spec` along `axis`, which are reduced to one."""
    return math.prod(spec.shape[a] for a in normalize_axes(axis, spec.ndim))


def reduced_terms(specs: Specs, params: Params) -> int:
    """The number of elements that are reduced to each result: the `terms` of a tolerance."""
    return element_count(first_tensor(specs), params.get("axis"))


def unreduced(g: TensorLike, x_spec: Spec, axis: Axis, keepdims: bool) -> Any:
    """A reduction's result or gradient with its reduced axes at length 1, so that it broadcasts against the input."""
    if keepdims:
        return g
    return reshape(g, reduced_shape(x_spec.shape, normalize_axes(axis, x_spec.ndim), True))


def _infer_rule(
    name: str, result: Callable[[DType], DType], empty: bool | Callable[[Params], bool], one_axis: bool
) -> Callable[[Specs, dict[str, Any]], list[Output]]:
    def infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
        spec, axis = first_tensor(specs), params["axis"]
        if one_axis and isinstance(axis, tuple | list) and len(axis) not in (1, spec.ndim):
            raise ValueError(f"axis {axis} names several axes; expected one, or None for all")
        axes = normalize_axes(axis, spec.ndim)
        shape = reduced_shape(spec.shape, axes, params["keepdims"])
        if 0 not in shape and not element_count(spec, axes) and not (empty(params) if callable(empty) else empty):
            raise ValueError(f"the {name} of no elements is undefined")
        params.update(axis=axes, keepdims=bool(params["keepdims"]))
        return [(result(spec.dtype), shape)]

    return infer


_KINDS = {"any": "bool", "all": "bool", "mean": "float"}
"""The only kind of dtype that a core member takes, by its name."""


def _core_rule(name: str) -> Callable[[ComputeBackend, Specs, tuple[Spec, ...], Params], CoreCall | Declined]:
    def rule(backend: ComputeBackend, specs: Specs, outputs: tuple[Spec, ...], params: Params) -> CoreCall | Declined:
        spec, (output,) = first_tensor(specs), outputs
        if name not in REQUIRED_REDUCE | backend.capabilities.reduce:
            return Declined(f"the backend has no {name} reduction")
        kind = _KINDS.get(name, spec.dtype.kind)
        if spec.dtype.kind != kind:
            return Declined(f"the reduction {name} takes {kind} only")
        if spec.dtype.kind == "float" and spec.dtype is not output.dtype:
            return Declined("the dtype changes")
        operand = output.dtype if name in ("sum", "prod") else spec.dtype
        rows = (output.size, spec.size // max(output.size, 1))
        return CoreCall(
            name,
            lambda x, out: backend.reduce(name, x, out),
            (CoreInput(operand, rows, _axes_last(spec, params["axis"])),),
            operand,
            (output.size,),
        )

    return rule


def _axes_last(spec: Spec, axes: tuple[int, ...]) -> layout.View:
    """The view with `axes` moved to the end."""
    return layout.permute(spec, (*(i for i in range(spec.ndim) if i not in axes), *axes))


_ERRORS = [
    ErrorSample((np.zeros((2, 3)),), {"axis": 2}, ValueError, "axis 2 is out of range"),
    ErrorSample((np.zeros((2, 3)),), {"axis": (0, 0)}, ValueError, "twice"),
]


def _samples(low: float, high: float, empty: bool) -> Samples:
    cases: list[tuple[tuple[int, ...], Axis, bool]] = [
        ((7,), None, False),
        ((3, 5), 0, False),
        ((3, 5), -1, True),
        ((2, 3, 4), (0, 2), False),
        ((2, 3, 4), 1, False),
        ((1,), None, True),
        ((), None, False),
        ((4, 300), 1, False),
        ((300, 4), 0, False),
        ((2, 3, 2, 3), (1, 3), True),
    ]
    if empty:
        cases += [((0,), None, False), ((0, 3), 0, False), ((3, 0), 0, False)]

    def samples(rng: np.random.Generator) -> list[Sample]:
        found = [Sample((rng.uniform(low, high, s),), {"axis": a, "keepdims": k}) for s, a, k in cases]
        for shape, axis in (((2, 20_000), 1), ((9000, 5), 0), ((8, 16, 9, 9), (0, 2, 3))):
            x = rng.uniform(low, high, shape)
            found.append(Sample((x,), {"axis": axis}, differentiable=False, note="many terms"))
        special = rng.uniform(low, high, (33, 70))
        special[3, 5], special[:, 66], special[20] = np.nan, np.inf, -np.inf
        note = "NaN and infinities among finite elements"
        return [*found, *(Sample((special,), {"axis": axis}, special=True, note=note) for axis in (0, 1))]

    return samples
