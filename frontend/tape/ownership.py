"""Ownership of the memory of gradients, which decides when a gradient may be added to another in place.

A gradient between two nodes of the tape is read-only, because several nodes may receive the same memory. Only the `.grad` of a
leaf is added to in place, and only while its memory has no other owner. Memory that an op allocates has one owner. It becomes
*shared* with the second one, and remains so. Shared memory is the memory of

- a gradient that a rule returns for several inputs (`add`), unless the inputs get separate parts of one block (`concat`) or are
  all leaves: the first leaf takes the memory, and the others copy it at once,
- a tensor that the tape had saved, which the program and other nodes may hold,
- a gradient that a user's code has received, in `backward`, in a hook or in a custom function, and a tensor that it returned,
- a gradient that is collected for a caller, or is on the tape itself (`create_graph`).

A rule that returns its incoming gradient, or a view of it, for one input does not share the memory. A leaf *takes* memory
that is not shared. Another leaf with a gradient in the same block copies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyhal.hal.core.memory.buffer import SHARED, TAKEN
from polyhal.hal.layout import extent
from polyhal.tape.slices import SliceSum

if TYPE_CHECKING:
    from polyhal.hal.layout import Ref
    from polyhal.tape.slices import Gradient
    from polyhal.tape.tape import Edge
    from polyhal.tensor import Tensor


def share(x: Tensor) -> None:
    """Note that the memory of `x` has another owner."""
    x.buffer.hold = SHARED


def take(x: Tensor) -> bool:
    """Make the memory of `x` the memory of a leaf's gradient. Returns False if it has another owner, or repeats elements."""
    if hasattr(x.buffer, "hold") or not x.is_contiguous:
        return False
    x.buffer.hold = TAKEN
    return True


def is_exclusive(x: Tensor) -> bool:
    """Return whether the memory of a leaf's gradient has no other owner, so that it may be added to in place."""
    return getattr(x.buffer, "hold", TAKEN) == TAKEN


def share_repeated(delivered: Sequence[tuple[Edge, Gradient]]) -> None:
    """Share the gradients that a rule returned for several inputs, each with the edge that it is delivered to.

    No-op for a sum of slices, which is added up in memory of its own.
    """
    own = [(edge, g) for edge, g in delivered if type(g) is not SliceSum]
    if len({g.buffer for _, g in own}) == len(own):
        return
    for i, (edge, g) in enumerate(own):
        for other_edge, other in own[:i]:
            if other.buffer is g.buffer and (other is g or _overlap(other.ref, g.ref)):
                to_leaves = not isinstance(edge, tuple) and not isinstance(other_edge, tuple)
                if not to_leaves or edge is other_edge:
                    share(g)


def _overlap(a: Ref, b: Ref) -> bool:
    """Return whether two views of one block may have elements in common."""
    (low_a, high_a), (low_b, high_b) = (extent(x.spec.shape, x.spec.strides) for x in (a, b))
    return a.offset + low_a <= b.offset + high_b and b.offset + low_b <= a.offset + high_a
