"""Other forms of PyTorch's names here, and names without a counterpart."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polyhal
from polyhal import linalg
from polyhal.nn import functional


class AbsentError(Exception):
    """A call of a spelling uses a feature that is left out on purpose."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a name of PyTorch is written here: as text, and as a function with PyTorch's arguments.

    Without text it is written in the same way, and only PyTorch's database calls it in another one.
    """

    text: str
    function: Callable[..., Any]


def _extremum(values: str, positions: str) -> Callable[..., Any]:
    def function(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        reduce = getattr(polyhal, values)
        if isinstance(dim, polyhal.Tensor):
            return getattr(polyhal, f"{values}imum")(x, dim)
        if dim is None:
            return reduce(x)
        return reduce(x, dim, keepdim), getattr(polyhal, positions)(x, dim, keepdim)

    return function


def _squeeze(x: Any, dim: Any = None) -> Any:
    axes = range(x.ndim) if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
    return polyhal.squeeze(x, tuple(a for a in axes if x.ndim and x.shape[a] == 1))


def _spread(name: str) -> Callable[..., Any]:
    def function(x: Any, dim: Any = None, unbiased: bool = True, *, correction: Any = None, **keywords: Any) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        degrees = int(unbiased) if correction is None else correction
        return getattr(polyhal, name)(x, dim, correction=degrees, **keywords)

    return function


def _svd(x: Any, some: bool = True, compute_uv: bool = True) -> Any:
    if not compute_uv:
        raise AbsentError("zeros in place of U and V; use linalg.svdvals")
    u, s, vh = linalg.svd(x, not some)
    return u, s, vh.transpose(-2, -1)


def _lu(x: Any, pivot: bool = True, get_infos: bool = False) -> Any:
    result = linalg.lu_factor_ex(x, pivot=pivot)
    return tuple(result) if get_infos else tuple(result[:2])


def _triangular_solve(b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    if transpose:
        a, upper = a.transpose(-2, -1), not upper
    return linalg.solve_triangular(a, b, upper=upper, unitriangular=unitriangular), a.clone()


def _floats_only(name: str) -> Spelling:
    """Return a function that takes integers in PyTorch, only on CPUs, and refuses them here on every device."""

    def function(x: Any, *args: Any, **keywords: Any) -> Any:
        if not x.dtype.is_floating_point:
            raise AbsentError("integers are refused")
        return getattr(functional, name)(x, *args, **keywords)

    return Spelling("of floats only", function)


_FLOATS_ONLY = [
    "local_response_norm",
    *(f"{name}{axes}d" for name in ("avg_pool", "conv", "conv_transpose") for axes in (1, 2, 3)),
]


def _batch_norm(x: Any, *args: Any, **keywords: Any) -> Any:
    if x.ndim < 2:
        raise AbsentError("a vector has no axis of channels")
    return functional.batch_norm(x, *args, **keywords)


SPELLINGS: dict[str, Spelling] = {
    **{f"nn.functional.{name}": _floats_only(name) for name in _FLOATS_ONLY},
    "equal": Spelling("`(x == y).all()`; `equal` is elementwise", lambda x, y: bool((x == y).all().item())),
    "lu": Spelling("`linalg.lu_factor(x)`", _lu),
    "lu_solve": Spelling("`linalg.lu_solve(LU, pivots, b)`", lambda b, lu, pivots: linalg.lu_solve(lu, pivots, b)),
    "qr": Spelling("`linalg.qr(x, mode)`", lambda x, some=True: tuple(linalg.qr(x, "reduced" if some else "complete"))),
    "svd": Spelling("`linalg.svd(x, full_matrices)`, which returns V transposed", _svd),
    "triangular_solve": Spelling("`linalg.solve_triangular(a, b, upper=True)`", _triangular_solve),
    "nonzero": Spelling(
        "`argwhere(x)`; `nonzero(x)` returns a tuple of one tensor per axis",
        lambda x, *, as_tuple=False: polyhal.nonzero(x, as_tuple=as_tuple),
    ),
    "max": Spelling("`max(x, dim)` for the values, `argmax(x, dim)` for their positions", _extremum("max", "argmax")),
    "min": Spelling("`min(x, dim)` for the values, `argmin(x, dim)` for their positions", _extremum("min", "argmin")),
    "nn.functional.ctc_loss": Spelling(
        "`nn.functional.ctc_loss(log_softmax(scores, -1), ...)`: the gradient of `log_probs` itself assumes no log-softmax",
        lambda log_probs, *args, **keywords: functional.ctc_loss(
            functional.log_softmax(log_probs, -1), *args, **keywords
        ),
    ),
    "nn.functional.batch_norm": Spelling("of at least two axes, (N, C, ...)", _batch_norm),
    "nn.functional.embedding_bag": Spelling(
        "",
        lambda weight, index, *args, **keywords: functional.embedding_bag(index, weight, *args, **keywords),
    ),
    "nn.functional.embedding": Spelling(
        "",
        lambda weight, index, **keywords: functional.embedding(index, weight, **keywords),
    ),
    "sort": Spelling(
        "`sort(x, dim)` for the values, `argsort(x, dim)` for their positions",
        lambda x, dim=-1, descending=False, stable=False: (
            polyhal.sort(x, dim, descending),
            polyhal.argsort(x, dim, descending),
        ),
    ),
    "squeeze": Spelling("`squeeze(x, dim)`, which raises where the length is not 1", _squeeze),
    "std": Spelling("`std(x, dim, correction=1)`: the default divides by n", _spread("std")),
    "var": Spelling("`var(x, dim, correction=1)`: the default divides by n", _spread("var")),
    "take": Spelling("`x.reshape(-1)[index]`; `take` is along an axis", lambda x, index: x.reshape(-1)[index]),
    "repeat": Spelling("", lambda x, *sizes: x.repeat(*sizes)),  # `polyhal.repeat` is the Array API's
    "where": Spelling("", lambda x, condition, y: polyhal.where(condition, x, y)),
}
"""By name, or by name and variant of PyTorch's database."""


def _in_place(name: str) -> Callable[..., Any]:
    return lambda x, *args, **keywords: getattr(x.clone(), f"{name}_")(*args, **keywords)


_IN_PLACE = ("cauchy", "exponential", "geometric", "log_normal", "uniform")
"""Draws that PyTorch has only as in-place methods."""


def _zeroed(x: Any) -> Any:
    return x.clone().zero_()


WRAPPED: dict[str, Callable[..., Any]] = {
    "einsum": lambda operands, equation: polyhal.einsum(equation, *operands),
    **{name: _in_place(name) for name in _IN_PLACE},
    "normal.in_place": _in_place("normal"),
    "zero_": _zeroed,  # the database calls it with a leaf
    "linalg.lstsq.grad_oriented": lambda a, b, driver: linalg.lstsq(a, b, driver=driver)[:2],
    "linalg.pinv.singular": lambda a, b: linalg.pinv(a @ b.mT),
    "pca_lowrank": lambda a, b, **keywords: linalg.pca_lowrank(a @ b.mT, **keywords),
    "svd_lowrank": lambda a, b, **keywords: linalg.svd_lowrank(a @ b.mT, **keywords),
}
"""Entries that the database calls through functions of its own."""

_ABSENT: dict[str, str] = {
    r"_.*|.*_copy|unsafe_.*|torch\.ops\..*|hash_tensor|split_with_sizes_copy": "internal to PyTorch",
    r"native_.*|max_pool2d_with_indices_backward|grid_sampler_[23]d|slice": "internal to PyTorch",
    r"chalf": "complex numbers have parts of float32 or float64",
    r"fill": "undocumented in PyTorch; use `full_like`",
    r"jiterator_.*": "compiles CUDA; `polyhal.kernel` compiles OpenCL and WGSL",
    r"sparse\..*|to_sparse|.*_sparse.*|smm|hspmm|sspaddmm|saddmm|spmm|dsmm|hsmm": "there are no sparse tensors",
    r"masked\..*": "a prototype of PyTorch; use `where`",
    r"resize_|resize_as_|as_strided.*|empty_strided|new_empty_strided|empty_permuted": "memory layouts are not the user's",
    r"cudnn_.*|miopen_.*|mkldnn_.*|fbgemm_.*|.*quantize.*|q_.*|int_repr": "a library or number format of PyTorch's own",
    r"resolve_conj|resolve_neg|is_conj|is_neg|conj_physical": "conjugates are computed at once here",
}
"""Reasons by pattern of names."""


def is_absent(name: str) -> str:
    """Why a name has no place here; empty if it has."""
    return next((reason for pattern, reason in _ABSENT.items() if re.fullmatch(pattern, name)), "")
