"""Ops made of fills and strided copies of output regions: copy, pad and concat, with stack and split around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyhal.hal import dtypes, layout
from polyhal.hal.core.dispatch.number_range import require_fit
from polyhal.hal.layout import Spec, View, normalize_axis
from polyhal.hal.ops import batching
from polyhal.hal.ops.composite import Returns, composite
from polyhal.hal.ops.declare import (
    Decompose,
    ErrorSample,
    Output,
    OutputRegion,
    Params,
    Regions,
    Sample,
    Specs,
    Trait,
    declare,
    first_tensor,
    tensors,
)
from polyhal.hal.ops.layout.axes import unsqueeze
from polyhal.hal.ops.layout.slicing import slice_
from polyhal.hal.ops.layout.views import EXACT, copy_region, infer_same, reshape
from polyhal.hal.ops.tensor_like import Array, TensorLike


def _copy(x: Array) -> Any:
    """A new tensor with the same elements, in row-major order."""
    return np.array(x)


copy = declare(
    _copy,
    name="copy",
    family="movement",
    infer=infer_same,
    lowering=Regions(copy_region),
    batching=batching.leading,
    gradient=lambda g: g,
    samples=lambda rng: [Sample((rng.uniform(-1, 1, (3, 4)),)), Sample((rng.uniform(-1, 1, (0, 4)),))],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


def _copies(*xs: Any) -> Any:
    """New tensors with the same elements, in row-major order: all in a few launches, where `copy` takes one for each."""
    return tuple(np.array(x) for x in xs)


copies = declare(
    _copies,
    name="copies",
    family="movement",
    variadic_outputs=True,
    infer=lambda specs, params: [(s.dtype, s.shape) for s in tensors(specs)],
    lowering=Decompose(lambda *xs: tuple(copy(x) for x in xs)),
    public=False,
    samples=lambda rng: [
        Sample(tuple(rng.uniform(-1, 1, s) for s in ((3, 4), (5,), (0, 2), ())), differentiable=False),
    ],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


def _pad(x: Array, *, widths: Any, value: float = 0) -> Any:
    """`x` with `widths[i] = (before, after)` elements of `value` added on axis i."""
    return np.pad(np.asarray(x), widths, constant_values=value)


def _infer_pad(specs: Specs, params: dict[str, Any]) -> list[Output]:
    spec = first_tensor(specs)
    widths = tuple(tuple(w) for w in params["widths"])
    if len(widths) != spec.ndim or any(len(w) != 2 or min(w) < 0 for w in widths):
        raise ValueError(f"widths {widths} do not give (before, after) >= 0 for each of the {spec.ndim} axes")
    params["widths"] = widths
    require_fit("pad", params["value"], spec.dtype)
    return [(spec.dtype, tuple(n + a + b for n, (a, b) in zip(spec.shape, widths, strict=True)))]


def _pad_regions(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[OutputRegion]:
    spec, out = first_tensor(specs), outputs[0]
    target = layout.slice_view(out, _before(params["widths"]), spec.shape, (1,) * spec.ndim)
    return [OutputRegion(View(out.shape, out.strides), value=params["value"]), OutputRegion(target, 0)]


def _before(widths: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(w[0] for w in widths)


pad = declare(
    _pad,
    name="pad",
    family="movement",
    infer=_infer_pad,
    lowering=Regions(_pad_regions),
    batching=lambda call: call.apply(call.inputs[0], widths=((0, 0), *call.params["widths"])),
    gradient=lambda g, x_spec, *, widths, value: slice_(g, _before(widths), x_spec.shape, (1,) * len(widths)),
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (3, 4)),), {"widths": ((1, 0), (2, 3)), "value": 1}),
        Sample((rng.uniform(-1, 1, (0, 2)),), {"widths": ((1, 1), (0, 0))}),
    ],
    errors=[ErrorSample((np.zeros((2, 3)),), {"widths": ((1, 1),)}, ValueError, "widths")],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


def _concat(*xs: Any, axis: int = 0) -> Any:
    """Tensors joined along an existing axis. Vectors without elements fit tensors of any shape, as in PyTorch."""
    arrays = [np.asarray(x) for x in xs]
    kept = [x for x in arrays if x.shape != _NOTHING] or arrays
    return np.concatenate(kept, axis=axis).astype(np.result_type(*arrays), copy=False)


_NOTHING = (0,)
"""The shape of a vector without elements, which joins tensors of any shape."""


def _infer_concat(specs: Specs, params: dict[str, Any]) -> list[Output]:
    if not specs:
        raise ValueError("needs at least one tensor")
    first = next((spec for spec in tensors(specs) if spec.shape != _NOTHING), first_tensor(specs))
    if first.ndim == 0:
        raise ValueError("zero-dimensional tensors cannot be joined; use stack")
    axis = normalize_axis(params["axis"], first.ndim)
    rest = _without(first.shape, axis)
    dtype, total = first.dtype, 0
    for spec in tensors(specs):
        dtype = dtypes.promote(dtype, spec.dtype)
        if spec.shape == _NOTHING:
            continue
        if spec.ndim != first.ndim or _without(spec.shape, axis) != rest:
            raise ValueError(f"shapes {first.shape} and {spec.shape} differ outside axis {axis}")
        total += spec.shape[axis]
    params["axis"] = axis
    return [(dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))]


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _starts(specs: Sequence[Spec], axis: int, ndim: int) -> list[tuple[int, ...]]:
    """The index at which each of several joined tensors begins in the result."""
    out, start = [], 0
    for spec in specs:
        out.append(tuple(start if a == axis else 0 for a in range(ndim)))
        start += 0 if spec.shape == _NOTHING else spec.shape[axis]
    return out


def _concat_regions(specs: Specs, outputs: tuple[Spec, ...], params: Params) -> list[OutputRegion]:
    out, parts = outputs[0], tensors(specs)
    return [
        OutputRegion(layout.slice_view(out, starts, spec.shape, (1,) * out.ndim), i)
        for i, (spec, starts) in enumerate(zip(parts, _starts(parts, params["axis"], out.ndim), strict=True))
        if spec.shape != _NOTHING
    ]


def _concat_gradient(g: TensorLike, xs_specs: tuple[Spec, ...], *, axis: int) -> Any:
    starts = _starts(xs_specs, axis % g.ndim, g.ndim)
    return tuple(_gradient_slice(g, s, spec.shape) for s, spec in zip(starts, xs_specs, strict=True))


def _gradient_slice(g: TensorLike, starts: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    if shape == _NOTHING:
        return reshape(slice_(g, (0,) * g.ndim, (0,) * g.ndim, (1,) * g.ndim), _NOTHING)
    return slice_(g, starts, shape, (1,) * g.ndim)


concat = declare(
    _concat,
    name="concat",
    family="movement",
    infer=_infer_concat,
    lowering=Regions(_concat_regions),
    traits=Trait.JOINS_OPERANDS,
    gradient=_concat_gradient,
    samples=lambda rng: [
        Sample((rng.uniform(-1, 1, (2, 3)), rng.uniform(-1, 1, (2, 1)), rng.uniform(-1, 1, (2, 0))), {"axis": -1}),
        Sample((rng.uniform(-1, 1, (2, 3)),), {"axis": 0}),
        Sample((rng.uniform(-1, 1, (0,)), rng.uniform(-1, 1, (2, 3))), {"axis": 1}),
    ],
    errors=[ErrorSample((np.zeros((2, 3)), np.zeros((3, 4))), {"axis": 0}, ValueError, "differ outside axis 0")],
    dtypes=dtypes.ALL,
    tolerance=EXACT,
)


@composite(method=False)
def stack(xs: Sequence[TensorLike], axis: int = 0) -> Any:
    """Tensors of one shape joined along a new axis.

    >>> polyhal.stack([polyhal.tensor([1, 2]), polyhal.tensor([3, 4])], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    return concat([unsqueeze(x, axis) for x in xs], axis)


@composite(returns=Returns.VIEW)
def split(
    x: TensorLike,
    sizes: int | Sequence[int] | None = None,
    axis: int = 0,
    *,
    split_size: int | Sequence[int] | None = None,
    split_size_or_sections: int | Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """Consecutive parts along `axis`: of `sizes` elements each (the last may be shorter), or of the sizes listed.

    PyTorch's keywords `split_size` and `split_size_or_sections` mean `sizes`, which may be a tensor too. Raises
    TypeError without sizes, and ValueError for a size of 0 and for sizes that do not add up to the length of the axis.

    >>> [part.tolist() for part in polyhal.split(polyhal.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    cut: Any = next((given for given in (sizes, split_size, split_size_or_sections) if given is not None), None)
    if cut is None:
        raise TypeError("[split] nothing says where to cut; expected a size or a list of sizes")
    sizes = cut.tolist() if hasattr(cut, "tolist") else cut
    axis = normalize_axis(axis, x.ndim)
    total = x.shape[axis]
    if isinstance(sizes, int):
        if sizes < 0 or (sizes == 0 and total):
            raise ValueError(f"[split] size {sizes}; expected at least 1")
        sizes = [min(sizes, total - start) for start in range(0, total, sizes or 1)] or [0]
    if sum(sizes) != total:
        raise ValueError(
            f"[split] sizes {list(sizes)} add up to {sum(sizes)}; expected {total}, the length of axis {axis}"
        )
    parts, start = [], 0
    for n in sizes:
        starts = tuple(start if i == axis else 0 for i in range(x.ndim))
        parts.append(slice_(x, starts, (*x.shape[:axis], n, *x.shape[axis + 1 :]), (1,) * x.ndim))
        start += n
    return tuple(parts)


@composite(returns=Returns.VIEW)
def chunk(x: TensorLike, chunks: int, axis: int = 0) -> tuple[Any, ...]:
    """`x` cut into `chunks` parts along `axis`, the last possibly shorter. Raises ValueError unless there is at least one.

    >>> [part.tolist() for part in polyhal.chunk(polyhal.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    if chunks < 1:
        raise ValueError(f"[chunk] {chunks} parts; expected at least 1")
    length = x.shape[normalize_axis(axis, x.ndim)]
    return split(x, -(-length // chunks) if length else [0] * chunks, axis)
