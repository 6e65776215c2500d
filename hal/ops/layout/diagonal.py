"""Diagonals as views, and `embed_diagonal`, which puts one back into zeros and so is the gradient of taking it."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.hal import dtypes, layout
from polyhal.hal.layout import Spec, View, normalize_axis
from polyhal.hal.ops.declare import (
    AsView,
    ErrorSample,
    OpFunction,
    Output,
    OutputRegion,
    Params,
    Regions,
    Sample,
    Specs,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.views import EXACT
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _diagonal_view(x: Array, *, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Diagonal number `offset` of the matrices in axes `dim1` and `dim2`, as the last axis. A view."""
    return np.diagonal(x, offset, dim1, dim2)


def view_of_diagonal(spec: Spec, params: Params) -> View:
    """Return the diagonal that `diagonal_view` takes, as a view. Axes count from 0."""
    a, b, offset = params["dim1"], params["dim2"], params["offset"]
    rest = [i for i in range(spec.ndim) if i not in (a, b)]
    rows, columns = spec.shape[a] - max(-offset, 0), spec.shape[b] - max(offset, 0)
    length = max(0, min(rows, columns))
    start = max(-offset, 0) * spec.strides[a] + max(offset, 0) * spec.strides[b] if length else 0
    shape = (*(spec.shape[i] for i in rest), length)
    return View(shape, (*(spec.strides[i] for i in rest), spec.strides[a] + spec.strides[b]), start)


def _infer(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    a, b = normalize_axis(params["dim1"], spec.ndim), normalize_axis(params["dim2"], spec.ndim)
    if a == b:
        raise ValueError(f"axes {params['dim1']} and {params['dim2']} are the same; expected two")
    params.update(dim1=a, dim2=b)
    return [(spec.dtype, view_of_diagonal(spec, params).shape)]


def _gradient(g: TensorLike, x_spec: Spec, *, offset: int, dim1: int, dim2: int) -> Any:
    return embed_diagonal(g, x_spec.shape, offset, dim1, dim2)


def _samples(rng: np.random.Generator) -> list[Sample]:
    cases = [((3, 5), 0, 0, 1), ((4, 3), -2, 0, 1), ((2, 3, 4), 1, -1, 0), ((2, 2), 3, 0, 1)]
    return [Sample((rng.uniform(-1, 1, s),), {"offset": o, "dim1": a, "dim2": b}) for s, o, a, b in cases]


diagonal_view: OpFunction = declare(
    _diagonal_view,
    name="diagonal_view",
    family="movement",
    infer=_infer,
    lowering=AsView(view_of_diagonal),
    public=False,
    gradient=_gradient,
    samples=_samples,
    errors=[ErrorSample((np.zeros((2, 3)),), {"dim1": 1, "dim2": -1}, ValueError, "are the same")],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


def _embed_diagonal(x: Array, *, shape: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Zeros of `shape` whose diagonal, as `diagonal_view` takes it, is `x`."""
    out = np.zeros(shape, np.asarray(x).dtype)
    view = np.moveaxis(out, (dim1, dim2), (-2, -1))
    n = np.arange(np.shape(x)[-1])
    view[..., n + max(-offset, 0), n + max(offset, 0)] = x
    return out


def _infer_embed(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec, shape = first_tensor(specs), tuple(params["shape"])
    params["shape"] = shape
    ((_, expected),) = _infer((layout.contiguous(spec.dtype, shape),), params)
    if spec.shape != expected:
        raise ValueError(f"x {spec.shape}; expected {expected}, the shape of the diagonal")
    return [(spec.dtype, shape)]


def _embed_regions(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[OutputRegion]:
    out = outputs[0]
    return [OutputRegion(View(out.shape, out.strides), value=0), OutputRegion(view_of_diagonal(out, params), 0)]


embed_diagonal: OpFunction = declare(
    _embed_diagonal,
    name="embed_diagonal",
    family="movement",
    infer=_infer_embed,
    lowering=Regions(_embed_regions),
    public=False,
    gradient=lambda g, *, offset, dim1, dim2: diagonal_view(g, offset, dim1, dim2),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (2, 3)),), {"shape": (2, 4, 3), "offset": -1, "dim1": 1, "dim2": 2}),
        Sample((rng.uniform(-1, 1, (4, 2)),), {"shape": (3, 4, 5), "offset": 3, "dim1": 0, "dim2": 2}),
    ],
    errors=[ErrorSample((np.zeros(3),), {"shape": (2, 2)}, ValueError, "the shape of the diagonal")],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


def _identity_like(x: Array) -> Any:
    """Identity matrices (..., m, n) in the shape and dtype of `x`."""
    x = np.asarray(x)
    return np.broadcast_to(np.eye(*x.shape[-2:], dtype=x.dtype), x.shape)


def _infer_identity(specs: Specs, params: Params) -> list[Output]:
    spec = first_tensor(specs)
    if spec.ndim < 2:
        raise ValueError(f"got shape {spec.shape}; expected at least 2 axes")
    return [(spec.dtype, spec.shape)]


def _identity_regions(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[OutputRegion]:
    out = outputs[0]
    ones = view_of_diagonal(out, {"dim1": out.ndim - 2, "dim2": out.ndim - 1, "offset": 0})
    return [OutputRegion(View(out.shape, out.strides), value=0), OutputRegion(ones, value=1)]


identity_like: OpFunction = declare(
    _identity_like,
    name="identity_like",
    family="creation",
    infer=_infer_identity,
    lowering=Regions(_identity_regions),
    public=False,
    gradient=lambda: None,
    samples=lambda rng: [Sample((rng.uniform(-1, 1, s),), differentiable=False) for s in [(3, 3), (2, 2, 4), (0, 0)]],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)
