"""Gradients by Polyhal's own autograd, for ops of ATen whose gradient Polyhal has no op for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyhal.autograd import enable_grad, grad


def gradients_of(
    function: Callable[..., Any], inputs: Sequence[Any], wanted: Sequence[bool], grads: Any
) -> tuple[Any, ...]:
    """Gradients of what `function` makes of `inputs`, weighted by `grads`, with respect to the inputs `wanted`; else None.

    The function is computed again, and where it does not depend on an input the gradient is None.
    """
    leaves = [x.detach().requires_grad_() if w else x for x, w in zip(inputs, wanted, strict=True)]
    with enable_grad():
        out = function(*leaves)
        found = iter(grad(out, [x for x, w in zip(leaves, wanted, strict=True) if w], grads, allow_unused=True))
    return tuple(next(found) if w else None for w in wanted)
