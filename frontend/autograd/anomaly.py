"""Anomaly mode: stop at the first op that makes a NaN or an infinity, and name the user's line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dispatch
from polyhal.hal.capture.user_line import user_line
from polyhal.hal.errors import NonFiniteError, message

if TYPE_CHECKING:
    from polyhal.hal.ops.opdef import OpDef


class _State(threading.local):
    enabled = False
    backward_of: str = ""
    """The forward op and line whose gradient is being computed."""


state = _State()


def _checked(op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
    result = dispatch.eager(op, inputs, params, device)
    for out in result if isinstance(result, tuple) else (result,):
        if out.dtype.kind == "float" and out.size:
            values = out.numpy()
            if not np.isfinite(values.astype(np.float32) if values.dtype.kind == "V" else values).all():
                raise NonFiniteError(_describe(op, inputs, values))
    return result


def _describe(op: OpDef, inputs: tuple[Any, ...], values: np.ndarray) -> str:
    wide = values.astype(np.float64)
    nans, infinities = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    sound = all(np.isfinite(x.numpy().astype(np.float64)).all() for x in inputs if hasattr(x, "ref"))
    origin = "its inputs are finite" if sound else "an input was not finite already"
    where = f"in the gradient of {state.backward_of}" if state.backward_of else f"at {user_line()}"
    return message(
        op.name, f"the result has {nans} NaN and {infinities} infinite of {wide.size} values, {origin}; {where}"
    )


@contextmanager
def detect_anomaly() -> Iterator[None]:
    """Check the result of every op inside the block, forward and backward.

    Raises NonFiniteError that names the first op with a NaN or an infinity in its result and the user's line. Slow: every
    result is read back.
    """
    previous, state.enabled = state.enabled, True
    try:
        with dispatch.executing(_checked):
            yield
    finally:
        state.enabled = previous
