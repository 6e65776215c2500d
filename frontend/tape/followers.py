"""Edges from gradients to inputs under `create_graph`, for gradients that do not depend on the input's elements.

The gradient of `relu` is piecewise constant. As in PyTorch it requires a gradient, and its derivative is zeros. Ops declare
such gradients with `flat_in` and `linear_in` (`hal/ops/gradient_rule.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.tape.function import attach, opaque

if TYPE_CHECKING:
    from polyhal.hal.layout import Spec
    from polyhal.tape.tape import Edge, GradNode
    from polyhal.tensor import Tensor

_FOLLOW = opaque("follow", 1)


def following(g: Tensor, edge: Edge, spec: Spec, *, zeros: bool) -> Tensor:
    """Return `g` with an edge to the input, whose gradient is zeros, or None without `zeros`."""
    from polyhal.tape.rules import zeros as zeros_of

    def rule(node: GradNode, grads: list[Tensor | None], needs: tuple[bool, ...]) -> tuple[Any, ...]:
        return grads[0], zeros_of(spec, node.device) if zeros and needs[1] else None

    followed = g.detach()
    node = attach(_FOLLOW, (g,), (followed,), rule)
    node.parents.append(edge)
    node.specs.append(spec)
    return followed
