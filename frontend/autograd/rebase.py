"""Writes in place on the tape, as in PyTorch: the memory is overwritten, and the tensors that see it get a new history.

The tape is functional. A write to a part of some memory is recorded as the op `overwrite` on all of it (the *base*), and a
tensor over that memory is a `window` of its newest value. The history of the base is kept with the buffer. A tensor whose node
is older than the newest write is given a new node when it is next used (`refreshed`); tensors that were not on the tape when
the write happened cannot be noticed by then, so views made off the tape are listed with the buffer (`note_view`).

A write costs no copy of the base: the node is recorded for memory that was written already.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.autograd.hooks import retain_gradient, stop_retaining
from polyhal.autograd.tape import GradNode, record
from polyhal.hal import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import Ref, Spec, contiguous, extent
from polyhal.hal.ops import OPS

if TYPE_CHECKING:
    from polyhal.hal.memory.buffer import Buffer
    from polyhal.tensor import Tensor

_OVERWRITE, _WINDOW = OPS["overwrite"], OPS["window"]
DETACHED = -1
"""`Tensor.index` of a tensor that was taken off the tape on purpose: writes to its memory do not put it back."""
_PRUNE_EVERY = 16
_NO_FIX = "do it under no_grad(), or use an op that returns a new tensor"


class History(NamedTuple):
    """Which output of which node a contiguous piece of memory holds; no node if it holds a constant."""

    spec: Spec
    offset: int
    node: GradNode | None
    output: int

    def is_at(self, x: Tensor) -> bool:
        """Whether this is exactly the memory of `x`, in the same layout."""
        return self.spec == x.ref.spec and self.offset == x.ref.offset

    def window(self, x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """The parameters of `window` and `overwrite` for the memory of `x`. Raises AutogradError if it is not inside."""
        low, high = extent(x.shape, x.strides)
        start = x.ref.offset - self.offset if x.size else 0  # an empty part may begin after the end
        if not self.spec.is_contiguous or start + low < 0 or start + high >= max(self.spec.size, 1):
            raise AutogradError(
                message(None, "a tensor that is changed in place is no part of the one it is a view of", fix=_NO_FIX)
            )
        return x.shape, x.strides, start

    def tensor(self, x: Tensor) -> Tensor:
        """The memory as a tensor, in the buffer of `x`."""
        base: Tensor = dispatch.frontend.wrap(x.device, x.buffer, Ref(x.ref.handle, self.spec, self.offset))
        base.node, base.index, base.requires_grad = self.node, self.output, self.node is not None
        return base


def note_view(x: Tensor, view: Tensor) -> None:
    """List a view that is not on the tape with its buffer, beside the tensor that it is a view of."""
    if x.index == DETACHED:
        view.index = DETACHED
        return
    buffer = x.buffer
    views: list[weakref.ref[Tensor]] | None = getattr(buffer, "views", None)
    if views is None:
        buffer.views = [weakref.ref(x), weakref.ref(view)]
        return
    if len(views) % _PRUNE_EVERY == 0:
        views[:] = [v for v in views if v() is not None]
    views.append(weakref.ref(view))


def refreshed(x: Tensor) -> Tensor:
    """Return `x`, with a new node if its memory was written on the tape after its node was recorded."""
    history = _history(x.buffer)
    if history is None or history.node is None or x.node is None or x.node.order >= history.node.order:
        return x
    _refresh(x, history)
    return x


def base_of(x: Tensor, method: str) -> History:
    """The memory that `x` is a view of, as the tape knows it. Raises AutogradError for leaves that require gradients."""
    if x.requires_grad and x.node is None:
        raise _refused(method, "a leaf that requires gradients")
    refreshed(x)
    history = None if x.index == DETACHED else _history(x.buffer)
    if history is not None:
        return history
    return _constant_base(x) if x.node is None else _recorded_base(x, method)


def rebase(x: Tensor, base: History, value: Any, *, is_result: bool) -> None:
    """Record that the memory of `x`, a part of `base`, was replaced by `value`.

    With `is_result`, `value` is the result of an op that nobody else holds, so that its node may become that of `x`.
    """
    with dispatch.enabled_grad():
        if is_result and base.is_at(x) and value.ref.spec.dtype is x.ref.spec.dtype and value.node is not None:
            history = base._replace(node=value.node, output=value.index)
        else:
            written = base._replace(node=None).tensor(x)
            record(_OVERWRITE, (base.tensor(x), value), base.window(x), (written,))
            history = base._replace(node=written.node, output=0)
        if x.index == DETACHED:
            _refresh(x, history)
            return
        views = [v for v in (ref() for ref in getattr(x.buffer, "views", None) or ()) if v is not None]
        x.buffer.history = history
        x.buffer.views = None
        for view in [x, *(v for v in views if v is not x and not v.requires_grad and v.dtype is x.dtype)]:
            _refresh(view, history)


def _refused(method: str, kind: str) -> AutogradError:
    return AutogradError(message(method, f"cannot change {kind} in place", fix=_NO_FIX))


def _history(buffer: Buffer) -> History | None:
    history: History | None = getattr(buffer, "history", None)
    return history


def _refresh(x: Tensor, history: History) -> None:
    retained = stop_retaining(x)
    if history.is_at(x):
        x.node, x.index, x.requires_grad = history.node, history.output, True
    else:
        x.index = 0
        # The node saves nothing, and is made only once, so that it belongs to no checkpointed region.
        region, dispatch.thread.region = dispatch.thread.region, None
        try:
            record(_WINDOW, (history.tensor(x),), history.window(x), (x,))
        finally:
            dispatch.thread.region = region
    if retained:
        retain_gradient(x)


def _constant_base(x: Tensor) -> History:
    """The memory that `x` and the views listed with it span."""
    views = [v for v in (ref() for ref in getattr(x.buffer, "views", None) or ()) if v is not None]
    seen = [x] if x.index == DETACHED else [x, *(v for v in views if v.dtype is x.dtype and v.size)]
    whole = next((v for v in seen if v.is_contiguous and v.size == max(s.size for s in seen)), None)
    if whole is not None and all(_within(s, whole) for s in seen):
        return History(whole.ref.spec, whole.ref.offset, None, 0)
    spans = [extent(s.shape, s.strides) for s in seen]
    low = min(s.ref.offset + span[0] for s, span in zip(seen, spans, strict=True))
    high = max(s.ref.offset + span[1] for s, span in zip(seen, spans, strict=True))
    return History(contiguous(x.dtype, (high - low + 1,)), low, None, 0)


def _within(x: Tensor, whole: Tensor) -> bool:
    low, high = extent(x.shape, x.strides)
    start = x.ref.offset - whole.ref.offset
    return start + low >= 0 and start + high < whole.size


def _recorded_base(x: Tensor, method: str) -> History:
    """Follow the views on the tape back to the tensor that they are of."""
    node, index, spec, offset = x.node, x.index, x.ref.spec, x.ref.offset
    while node is not None and node.rule is None and node.op.view is not None:
        parent, source = node.parents[0], node.specs[0]
        bound = node.op.bind(dispatch.freeze(node.params))
        if parent is None or source is None:
            break
        dispatch.infer(node.op, (source,), bound)
        view = node.op.view_of(source, bound)
        if view is None:
            break
        if not isinstance(parent, tuple):
            raise _refused(method, "a view of a leaf that requires gradients")
        spec, offset = source, offset - view.offset
        node, index = parent
    return History(spec, offset, node, index)
