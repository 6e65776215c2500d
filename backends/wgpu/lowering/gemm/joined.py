"""Products of few rows with several matrices in one launch, and a norm before them: their template variables and arguments."""

from __future__ import annotations

from polyhal.backends.common.launching.launch import Argument, Arguments, Tensor
from polyhal.backends.common.problems.gemm import Product
from polyhal.backends.wgpu.lowering.gemm.arguments import LANES

MAX_MATRICES = 3


def joined(p: Product, name: str) -> tuple[dict[str, object], Arguments]:
    """Return the variables and arguments of further matrices, with names that begin with `name`, and of the norm."""
    if p.joined is None:
        return {}, {}
    args: dict[str, Argument] = {f"{name}{i}": Tensor(place) for i, place in enumerate(p.joined.places, 1)}
    if not p.joined.pairs:
        args |= {f"first{i}": first for i, first in enumerate(p.joined.firsts, 1)}
    if p.joined.norm is not None:
        args |= {"scale": Tensor(p.joined.norm), "eps": p.joined.eps}
    variables: dict[str, object] = {
        "MATRICES": 1 + len(p.joined.places),
        "PAIRS": p.joined.pairs,
        "NORM": p.joined.norm is not None,
        "SCALE_LANES": LANES if p.joined.norm_aligned else 1,
    }
    return variables, args


def buffers(p: Product) -> int:
    """Return the number of buffers of a kernel without an epilogue."""
    return 3 if p.joined is None else 3 + len(p.joined.places) + (p.joined.norm is not None)


def divided(p: Product, columns: int) -> bool:
    """Return whether a group of `columns` columns may have parts of two matrices."""
    return p.joined is not None and not p.joined.pairs and any(first % columns for first in p.joined.firsts)
