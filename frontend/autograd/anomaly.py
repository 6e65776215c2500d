"""Anomaly mode: stop at the first op that makes a NaN or an infinity, and name the user's line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.hal import dispatch
from polyhal.hal.capture.user_line import user_line
from polyhal.hal.errors import NonFiniteError, message

if TYPE_CHECKING:
    from polyhal.hal.ops.opdef import OpDef


class _CheckingExecutor(dispatch.ForwardingExecutor):
    """Runs ops and checks their results."""

    __slots__ = ("_gradient_of",)

    replays_graphs = False

    def __init__(self) -> None:
        super().__init__(dispatch.EAGER)
        self._gradient_of = ""
        """The forward op whose gradient is computed at the moment, and its line."""

    def apply(self, op: OpDef, inputs: tuple[Any, ...], params: tuple[Any, ...], device: Any = None) -> Any:
        result = self.base.apply(op, inputs, params, device)
        for out in result if isinstance(result, tuple) else (result,):
            if out.dtype.kind == "float" and out.size:
                values = out.numpy()
                if not np.isfinite(values.astype(np.float32) if values.dtype.kind == "V" else values).all():
                    raise NonFiniteError(self._description(op, inputs, values))
        return result

    def add_to_tape(self, node: dispatch.TapeNode) -> None:
        node.line = user_line()

    @contextmanager
    def differentiating(self) -> Iterator[None]:
        previous = self._gradient_of
        try:
            yield
        finally:
            self._gradient_of = previous

    def differentiate(self, node: dispatch.TapeNode) -> None:
        self._gradient_of = f"{node.op.name} at {node.line}" if node.line else node.op.name

    def _description(self, op: OpDef, inputs: tuple[Any, ...], values: np.ndarray) -> str:
        wide = values.astype(np.float64)
        nans, infinities = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
        sound = all(np.isfinite(x.numpy().astype(np.float64)).all() for x in inputs if hasattr(x, "ref"))
        origin = "its inputs are finite" if sound else "an input was not finite already"
        where = f"in the gradient of {self._gradient_of}" if self._gradient_of else f"at {user_line()}"
        return message(
            op.name, f"the result has {nans} NaN and {infinities} infinite of {wide.size} values, {origin}; {where}"
        )


def detect_anomaly(check_nan: bool = True) -> AbstractContextManager[None]:
    """Check the result of every op inside the block, forward and backward. Slow: every result is read back.

    Raises NonFiniteError that names the first op with a NaN or an infinity in its result, and the user's line; CaptureError
    inside a captured step, which has no results to check. Without `check_nan` nothing is checked.
    """
    if not check_nan:
        return nullcontext()
    dispatch.thread.executor.require_execution(
        "detect_anomaly",
        "results are checked while the step is only being recorded",
        fix="call the function without jit",
    )
    return dispatch.executing(_CheckingExecutor())
