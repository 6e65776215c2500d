"""Complex tensors in backward passes: they are represented by their parts, and gradients of parts are joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polyhal.hal.core import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.ops import FUNCTIONS

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_full = FUNCTIONS["full"]


def parts_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors with both parts in place of complex ones."""
    return [part for x in tensors for part in ((x.real, x.imag) if x.dtype.is_complex else (x,))]


def seeded_parts(
    tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]
) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
    """Return outputs and their gradients with parts in place of complex ones, without parts that are not on the tape.

    Raises AutogradError for a complex output without a gradient: its derivative has no one direction.
    """
    if not any(x.dtype.is_complex for x in tensors):
        return tensors, gradients
    outputs: list[Tensor] = []
    seeds: list[Tensor | None] = []
    for x, g in zip(tensors, gradients, strict=True):
        if not x.dtype.is_complex:
            outputs.append(x)
            seeds.append(g)
            continue
        if g is None:
            problem = f"the output is {x.dtype.name}"
            raise AutogradError(message("backward", problem, expected="a real one, or a gradient of its shape"))
        weights = (g.real, g.imag) if g.dtype.is_complex else (g, None)
        for part, weight in zip((x.real, x.imag), weights, strict=True):
            if part.requires_grad and weight is not None:
                outputs.append(part)
                seeds.append(weight)
    if not outputs and tensors:
        return tensors[:1], gradients[:1]
    return outputs, seeds


def joined_gradients(inputs: Sequence[Tensor], found: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return gradients of `inputs` from gradients of their parts; zeros for one part if the other has a gradient."""
    remaining = iter(found)
    return [_joined(x, next(remaining), next(remaining)) if x.dtype.is_complex else next(remaining) for x in inputs]


def _joined(x: Tensor, re: Any, im: Tensor | None) -> Tensor | None:
    if re is None and im is None:
        return None
    zeros = _full(x.shape, 0, x.real.dtype, device=x.device) if re is None or im is None else None
    joined: Tensor = dispatch.frontend.join(zeros if re is None else re, zeros if im is None else im)
    return joined
