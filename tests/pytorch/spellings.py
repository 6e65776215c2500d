"""What PyTorch's names are spelled like here, where the spelling differs, and which have no place here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polyhal


class AbsentError(Exception):
    """A call of a spelling uses a feature that is left out on purpose."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a name of PyTorch is written here: as text, and as a function with PyTorch's arguments."""

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


SPELLINGS: dict[str, Spelling] = {
    "max": Spelling("`max(x, dim)` for the values, `argmax(x, dim)` for their positions", _extremum("max", "argmax")),
    "min": Spelling("`min(x, dim)` for the values, `argmin(x, dim)` for their positions", _extremum("min", "argmin")),
}
"""By name, or by name and variant of PyTorch's database."""

_ABSENT: dict[str, str] = {
    r"_.*|.*_copy|unsafe_.*|torch\.ops\..*|hash_tensor|split_with_sizes_copy": "internal to PyTorch",
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
