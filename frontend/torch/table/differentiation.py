"""Gradients by Polyhal's autograd, for ops of ATen whose gradient is not an op of Polyhal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from polyhal.tape.engine import grad
from polyhal.tape.modes import enable_grad

if TYPE_CHECKING:
    from polyhal.tensor import Tensor


def gradients_of(
    function: Callable[..., Any], inputs: Sequence[Tensor], wanted: Sequence[bool], grads: Tensor
) -> tuple[Any, ...]:
    """Return gradients of `function(*inputs)`, weighted by `grads`, for the `wanted` inputs; None for the others.

    The function is recomputed. The gradient of an input that it does not depend on is None.
    """
    leaves = [x.detach().requires_grad_() if w else x for x, w in zip(inputs, wanted, strict=True)]
    with enable_grad():
        out = function(*leaves)
        found = iter(grad(out, [x for x, w in zip(leaves, wanted, strict=True) if w], grads, allow_unused=True))
    return tuple(next(found) if w else None for w in wanted)
