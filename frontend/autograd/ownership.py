"""Who may write to the memory of a gradient.

A gradient that travels along the tape is read-only: its memory may be on its way to several nodes. In place is only added to
the `.grad` of a leaf, and only where no other holder sees that memory. An op makes memory that has one holder. It becomes
*shared* when a second one gets it, and stays so. Shared are

- a gradient that a rule returns for several inputs (`add`), unless these are separate parts of one block (`concat`) or all go
  to leaves: of these the first takes it, and the others copy it at once,
- what the tape had saved, which the program and other nodes may hold,
- what a user's code has seen: gradients passed to `backward`, to hooks and to custom functions, and what these return,
- gradients that are collected for a caller, or put on the tape themselves (`create_graph`).

A rule that returns its incoming gradient, or a view of it, for one input passes the memory on as it got it. A leaf *takes*
memory that is not shared; another leaf that gets the same memory, or another part of the block, copies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.autograd.slices import SliceSum
from polyhal.hal.layout import extent
from polyhal.hal.memory.buffer import SHARED, TAKEN

if TYPE_CHECKING:
    from polyhal.autograd.slices import Gradient
    from polyhal.autograd.tape import Edge
    from polyhal.hal.layout import Ref
    from polyhal.tensor import Tensor


def share(x: Tensor) -> None:
    """Note that the memory of `x` has another holder."""
    x.buffer.hold = SHARED


def take(x: Tensor) -> bool:
    """Let the memory of `x` be that of a leaf's gradient. Returns False if it has another holder, or repeats elements."""
    if hasattr(x.buffer, "hold") or not x.is_contiguous:
        return False
    x.buffer.hold = TAKEN
    return True


def is_exclusive(x: Tensor) -> bool:
    """Whether the memory of a leaf's gradient has no other holder, so that it may be added to in place."""
    return getattr(x.buffer, "hold", TAKEN) == TAKEN


def share_repeated(delivered: Sequence[tuple[Edge, Gradient]]) -> None:
    """Share gradients that a rule returned for several inputs, and that go where the edges say.

    A sum of slices has memory of its own.
    """
    for i, (edge, g) in enumerate(delivered):
        if isinstance(g, SliceSum):
            continue
        for other_edge, other in delivered[:i]:
            if isinstance(other, SliceSum) or other.buffer is not g.buffer:
                continue
            if other is g or _overlap(other.ref, g.ref):
                to_leaves = not isinstance(edge, tuple) and not isinstance(other_edge, tuple)
                if not to_leaves or edge is other_edge:
                    share(g)


def _overlap(a: Ref, b: Ref) -> bool:
    """Whether two views of one block may have elements in common."""
    (low_a, high_a), (low_b, high_b) = (extent(x.spec.shape, x.spec.strides) for x in (a, b))
    return a.offset + low_a <= b.offset + high_b and b.offset + low_b <= a.offset + high_a
