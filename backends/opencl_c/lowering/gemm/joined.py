"""Products of few rows with several matrices in one launch, and a norm before them (shaders/opencl/gemm/joined.h)."""

from __future__ import annotations

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.launch import Argument, Tensor
from polyhal.backends.common.problems.gemm import Product

MAX_MATRICES = 3


def joined(p: Product) -> tuple[Definitions, dict[str, Argument]]:
    """Return the definitions and kernel arguments for the further matrices and the norm of a product."""
    if p.joined is None:
        return {}, {}
    definitions: dict[str, str | int | bool] = {
        "MATRICES": 1 + len(p.joined.places),
        "PAIRS": p.joined.pairs,
        "NORM": p.joined.norm is not None,
    }
    args: dict[str, Argument] = {}
    for i, place in enumerate(p.joined.places, 1):
        args |= {f"y{i}": Tensor(place), f"first{i}": 0 if p.joined.pairs else p.joined.firsts[i - 1]}
    if p.joined.norm is not None:
        args |= {"scale": Tensor(p.joined.norm), "eps": p.joined.eps}
    return definitions, args


def divides(p: Product, columns: int) -> bool:
    """Return whether groups of `columns` columns of a product with few rows have one matrix each, or whole pairs."""
    joined = p.joined
    return joined is None or joined.pairs or not any(first % columns for first in joined.firsts)
