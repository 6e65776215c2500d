"""Writes in place on the tape, as in PyTorch: the memory is overwritten, and the tensors that see it get a new history.

The tape is functional. A write to a part of some memory is recorded as the op `overwrite` on all of it (the *base*), and a
tensor over that memory is a `window` of its newest value. The history of the base is kept with the buffer. A tensor whose node
is older than the newest write is given a new node when it is next used (`refreshed`); tensors that were not on the tape when
the write happened cannot be noticed by then, so views made off the tape are listed with the buffer (`note_view`).

A tensor that `detach` took off the tape begins a history of its own, which its later views share. On the tape, a write to
it does not change the tensor that it was detached from, and neither does a write to that tensor change the detached one.

A write costs no copy of the base: the node is recorded for memory that was written already.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from polyhal.hal.core import dispatch
from polyhal.hal.errors import AutogradError, message
from polyhal.hal.layout import Ref, Spec, contiguous, extent
from polyhal.hal.ops import OPS
from polyhal.tape.hooks import retain_gradient, retaining, stop_retaining
from polyhal.tape.tape import GradNode, record

if TYPE_CHECKING:
    from polyhal.tensor import Tensor

_OVERWRITE, _WINDOW = OPS["overwrite"], OPS["window"]
_detached = itertools.count(-1, -1)
_PRUNE_EVERY = 16
_NO_FIX = "do it under no_grad(), or use an op that returns a new tensor"


class History(NamedTuple):
    """Node and output index whose result is in a contiguous piece of memory; the node is None for a constant."""

    spec: Spec
    offset: int
    node: GradNode | None
    output: int

    def is_at(self, x: Tensor) -> bool:
        """Return whether this is exactly the memory of `x`, in the same layout."""
        return self.spec == x.ref.spec and self.offset == x.ref.offset

    def window(self, x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Return the parameters of `window` and `overwrite` for the memory of `x`. Raises AutogradError if it is not inside."""
        low, high = extent(x.shape, x.strides)
        start = x.ref.offset - self.offset if x.size else 0  # an empty part may begin after the end
        if not self.spec.is_contiguous or start + low < 0 or start + high >= max(self.spec.size, 1):
            raise AutogradError(
                message(None, "a tensor that is changed in place is no part of the one it is a view of", fix=_NO_FIX)
            )
        return x.shape, x.strides, start

    def tensor(self, x: Tensor) -> Tensor:
        """Return the memory as a tensor, in the buffer of `x`."""
        base: Tensor = dispatch.frontend.wrap(x.device, x.buffer, Ref(x.ref.handle, self.spec, self.offset))
        base.node, base.index, base.requires_grad = self.node, self.output, self.node is not None
        return base


class DetachedHistory(NamedTuple):
    """The history of a tensor that was detached from the tape, and of its views."""

    history: History
    orders: frozenset[int]
    """The orders of the nodes that have written to the memory since. Nodes of views lead to one of them."""
    tensors: tuple[weakref.ref[Tensor], ...]
    """The tensors that were listed at the first write. The history ends when all of them are gone."""


class TapePlace:
    """State of a tensor on the tape: its node, and the history and views of its memory."""

    __slots__ = ("_detached", "_history", "_requires_grad", "_views", "index", "node", "tensor")

    def __init__(self, x: Tensor) -> None:
        buffer = x.buffer
        self.tensor, self.node, self.index, self._requires_grad = x, x.node, x.index, x.requires_grad
        self._history, self._detached = getattr(buffer, "history", None), getattr(buffer, "detached", ())
        views = getattr(buffer, "views", None)
        self._views = None if views is None else list(views)

    def restore(self) -> None:
        """Restore the state of the tensor and its memory."""
        x, buffer = self.tensor, self.tensor.buffer
        x.node, x.index, x.requires_grad = self.node, self.index, self._requires_grad
        buffer.history, buffer.detached, buffer.views = self._history, self._detached, self._views


def detached_index() -> int:
    """Return a new, negative `Tensor.index` for a tensor that is detached from the tape and for its views."""
    return next(_detached)


def note_view(x: Tensor, view: Tensor) -> None:
    """List a view that is not on the tape with its buffer, and the tensor that it is a view of."""
    buffer = x.buffer
    views: list[weakref.ref[Tensor]] | None = getattr(buffer, "views", None)
    if views is None:
        views = buffer.views = [weakref.ref(x)]
    elif len(views) % _PRUNE_EVERY < 2:
        views[:] = [v for v in views if v() is not None]
    if x.index < 0:
        view.index = x.index
        if not any(v() is x for v in views):
            views.append(weakref.ref(x))
    views.append(weakref.ref(view))


def refreshed(x: Tensor) -> Tensor:
    """Return `x`, with a new node if its memory was written on the tape after its node was recorded."""
    history = _history(x)
    if history is None or history.node is None or x.node is None or x.node.order >= history.node.order:
        return x
    _renew(x, history)
    return x


def history_of(x: Tensor) -> History | None:
    """Return the history of writes to the memory of a tensor; None without writes."""
    return _history(refreshed(x))


def follow(x: Tensor, other: Tensor) -> Tensor:
    """Return `x`, with a node for the memory that it shares with `other` if the memory was written on the tape."""
    history = history_of(other)
    if history is not None and history.node is not None:
        _refresh(x, history, is_view=True)
    return x


def base_of(x: Tensor, method: str) -> History:
    """Return the history of the memory that `x` is a view of. Raises AutogradError for leaves that require gradients.

    If `x` is a view that a gradient would reach through nodes with hooks, create a new node: as in PyTorch, a write to a view
    is a write to a part of its base, and its gradient does not pass through the tensors in between.
    """
    if x.requires_grad and x.node is None:
        raise _refused(method, "a leaf that requires gradients")
    refreshed(x)
    history = _history(x)
    if history is None:
        history = _constant_base(x) if x.node is None else _recorded_base(x, method)
    if _has_hooks(x, history):
        _renew(x, history)
    return history


def rebase(x: Tensor, base: History, value: Any, *, is_result: bool, others: Sequence[Tensor] = ()) -> None:
    """Record that the memory of `x`, a part of `base`, was replaced by `value`.

    With `is_result`, `value` is the result of an op that nobody else holds, so that its node may become that of `x`. `others`
    are further tensors in that memory.
    """
    with dispatch.enabled_grad():
        if is_result and base.is_at(x) and value.ref.spec.dtype is x.ref.spec.dtype and value.node is not None:
            value.node.is_view = False
            history = base._replace(node=value.node, output=value.index)
        else:
            written = base._replace(node=None).tensor(x)
            record(_OVERWRITE, (base.tensor(x), value), base.window(x), (written,))
            history = base._replace(node=written.node, output=0)
        views = _views(x)
        off_tape = (v for v in views if not v.requires_grad and v.dtype is x.dtype)
        kept = () if base.node is None else retaining(base.node, base.output)
        tensors = list({id(t): t for t in (x, *others, *off_tape, *kept)}.values())
        for t in tensors:
            if (recorder := dispatch.thread.executor.recorder) is not None:
                recorder.before_rebase(t, TapePlace)
        _keep(x, history, tensors)
        for t in tensors:
            # The first tensor in the list is the one that the others are views of.
            _refresh(t, history, is_view=any(t is v for v in views[1:]) if t.node is None else t.node.is_view)


def _refused(method: str, kind: str) -> AutogradError:
    return AutogradError(message(method, f"cannot change {kind} in place", fix=_NO_FIX))


def _history(x: Tensor) -> History | None:
    if x.index < 0:
        return None
    history: History | None = getattr(x.buffer, "history", None)
    detached: tuple[DetachedHistory, ...] = getattr(x.buffer, "detached", ())
    if history is None and not detached:
        return None
    found = _own_history(x, detached)
    if isinstance(found, DetachedHistory):
        return found.history
    return history if found is None else None


def _detached_history(x: Tensor) -> DetachedHistory | None:
    """Return the history of `x` if it, or the tensor that it is a view of, was detached before."""
    detached: tuple[DetachedHistory, ...] = getattr(x.buffer, "detached", ())
    found = _own_history(x, detached) if detached else None
    return found if isinstance(found, DetachedHistory) else None


def _own_history(x: Tensor, detached: tuple[DetachedHistory, ...]) -> DetachedHistory | Tensor | None:
    """Follow the views on the tape from `x` back to a detached history, or to a leaf, which is not written to on the tape."""
    node = x.node
    while node is not None:
        for one in detached:
            if node.order in one.orders:
                return one
        parent = node.parents[0] if node.is_view else None
        if parent is not None and not isinstance(parent, tuple):
            return parent
        node = None if parent is None else parent[0]
    return None


def _views(x: Tensor) -> list[Tensor]:
    """Return the tensors off the tape, listed with the memory, that a write to `x` on the tape changes."""
    listed = [v for v in (ref() for ref in getattr(x.buffer, "views", None) or ()) if v is not None]
    if x.index < 0:
        return [v for v in listed if v.index == x.index]
    return [] if _detached_history(x) is not None else [v for v in listed if v.index >= 0]


def _keep(x: Tensor, history: History, tensors: list[Tensor]) -> None:
    """Store the history of `x`, and remove the tensors, which are on the tape now, from the list of views."""
    buffer, node = x.buffer, history.node
    assert node is not None
    others = tuple(d for d in getattr(buffer, "detached", ()) if any(t() is not None for t in d.tensors))
    before = _detached_history(x)
    if x.index < 0:
        buffer.detached = (*others, DetachedHistory(history, frozenset({node.order}), tuple(map(weakref.ref, tensors))))
    elif before is not None:
        later = before._replace(history=history, orders=before.orders | {node.order})
        buffer.detached = (*(d for d in others if d is not before), later)
    else:
        buffer.history = history
    listed = getattr(buffer, "views", None) or ()
    buffer.views = [ref for ref in listed if (v := ref()) is not None and not any(v is t for t in tensors)] or None


def _has_hooks(x: Tensor, base: History) -> bool:
    """Return whether a node between `x` and its base has hooks."""
    node = x.node
    while node is not None and node.is_view and node is not base.node:
        if node.hooks is not None and any(node.hooks.values()):
            return True
        parent = node.parents[0]
        node = parent[0] if isinstance(parent, tuple) else None
    return False


def _renew(x: Tensor, history: History) -> None:
    """Give a tensor on the tape a new node for the contents of its memory."""
    if (recorder := dispatch.thread.executor.recorder) is not None:
        recorder.before_rebase(x, TapePlace)
    assert x.node is not None
    _refresh(x, history, is_view=x.node.is_view)


def _refresh(x: Tensor, history: History, *, is_view: bool) -> None:
    """Put `x` on the tape: as a view of the memory with a node of its own, or as the tensor that the memory belongs to."""
    retained = stop_retaining(x)
    if history.is_at(x) and not (is_view and history.spec.is_contiguous):
        x.node, x.index, x.requires_grad = history.node, history.output, True
    else:
        x.index = 0
        # The node saves nothing and is made once, so that no checkpointed region records it.
        region, dispatch.thread.region = dispatch.thread.region, None
        try:
            record(_WINDOW, (history.tensor(x),), history.window(x), (x,))
        finally:
            dispatch.thread.region = region
    if retained:
        retain_gradient(x)


def _constant_base(x: Tensor) -> History:
    """Return the memory that `x` and the views listed with it span: the base of the first view if it contains all of them."""
    seen = [*(v for v in _views(x) if v.dtype is x.dtype and v.size), x]
    whole = next((v for v in seen if v.is_contiguous and all(_within(s, v) for s in seen)), None)
    if whole is not None:
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
    while node is not None and node.is_view:
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
    if node is not None:
        node.is_view = False  # such as a reshape that copied
    return History(spec, offset, node, index)
