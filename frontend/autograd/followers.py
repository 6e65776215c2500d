"""Gradients that follow their input on the tape under `create_graph`, although they do not depend on its elements.

The gradient of `relu` changes with its input by steps: as in PyTorch it can be differentiated again, to zeros. Ops declare that
with `flat_in` and `linear_in` (`hal/ops/gradient_rule.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyhal.autograd.function import attach, opaque

if TYPE_CHECKING:
    from polyhal.autograd.tape import Edge, GradNode
    from polyhal.hal.layout import Spec
    from polyhal.tensor import Tensor

_FOLLOW = opaque("follow", 1)


def following(g: Tensor, edge: Edge, spec: Spec, *, zeros: bool) -> Tensor:
    """Return the gradient of an input on the tape: a backward pass through it brings the input zeros, or nothing."""
    from polyhal.autograd.rules import zeros as zeros_of

    def rule(node: GradNode, grads: list[Tensor | None], needs: tuple[bool, ...]) -> tuple[Any, ...]:
        return grads[0], zeros_of(spec, node.device) if zeros and needs[1] else None

    followed = g.detach()
    node = attach(_FOLLOW, (g,), (followed,), rule)
    node.parents.append(edge)
    node.specs.append(spec)
    return followed
