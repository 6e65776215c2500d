"""The calls that programs are made of, by family: elementwise ones follow from the declarations of ops, others are tables."""

from __future__ import annotations

import functools

from benchmarks.reliability.programs.ops import contraction, indexing, movement, networks, reduction
from benchmarks.reliability.programs.ops.call import Call
from benchmarks.reliability.programs.ops.elementwise import elementwise


@functools.cache
def families() -> dict[str, tuple[Call, ...]]:
    """Return all calls by family."""
    return {
        "elementwise": elementwise(),
        "movement": movement.CALLS,
        "views": movement.VIEWS,
        "indexing": indexing.CALLS,
        "reduction": reduction.CALLS,
        "contraction": contraction.CALLS,
        "networks": networks.CALLS,
    }


NOT_OF_SPECIAL = (
    "rfft",
    "irfft", "trapezoid", "multi_margin_loss", "var", "std", "cdist", "median", "kthvalue", "argsort", "polynomial", "bessel",
    "airy", "norm", "igamma", "zeta", "searchsorted", "attention", "quantile", "embed",
)  # fmt: skip
"""Parts of the names of ops whose NaN and infinities in PyTorch follow from its algorithm, not from their definition: the mean
of infinities is NaN in `var_mean`, a polynomial of NaN is 0, J0 of infinity is NaN."""

WEIGHTS = {
    "elementwise": 30,
    "movement": 12,
    "views": 16,
    "indexing": 10,
    "reduction": 14,
    "contraction": 9,
    "networks": 9,
}
"""How often a call is of each family."""
