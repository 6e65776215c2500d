"""The recorder protocol: interface of an executor that records ops, beyond running them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from polyhal.hal.core.execution.executor import Array, RandomSource


class Recorder(Protocol):
    """Records changes that are not ops: state, constants, scalars and random numbers of a step.

    Ops become nodes of a graph, which is replayed later, any number of times, without Python.
    """

    def capture_constant(self, x: Array) -> None:
        """Make the elements of `x`, which was just made from host data, a constant of the graph."""
        ...

    def track(self, x: Array, base: Array | None = None) -> None:
        """Note that `x` was just made over the memory of another array: of `base`, if that is all of this memory."""
        ...

    def require_success(self, info: Array) -> bool:
        """Let the recorded op that returns `info` raise its error when it runs. Returns False if no such op can be changed."""
        ...

    def runtime_scalar(self, compute: Callable[[], Any], name: str = "", increment: int = 0) -> Any:
        """Return a scalar that calls `compute` before each replay. See `polyhal.runtime_scalar`."""
        ...

    def random_state(self, source: RandomSource) -> dict[str, int]:
        """Return a position in the words that each run draws from a source, with the seed -1."""
        ...

    def set_random_state(self, source: RandomSource, state: Mapping[str, int]) -> None:
        """Set a source to a position of `random_state`. Raises CaptureError for a state from outside."""
        ...

    def on_rollback(self, snapshot: Callable[[], Callable[[], object]]) -> None:
        """Register a rollback of a change to a Python object, called if the recording is abandoned.

        `snapshot` is called now; it notes the state before the change and returns the rollback.
        """
        ...

    def before_rebase(self, x: Array, place: Callable[[Any], Any]) -> None:
        """Prepare for another place of `x` on the tape because of a write to its memory.

        `place` is called with `x` and returns the present place, an object with a method `restore`.
        """
        ...

    def name_state(self, state: Mapping[Any, Mapping[str, Any]]) -> None:
        """Name the arrays kept for a parameter after it: `state` maps parameters to arrays by name."""
        ...

    def before_gradient_read(self, leaf: Any) -> None:
        """Prepare for a look at a leaf's gradient."""
        ...

    def before_gradient_write(self, leaf: Any) -> None:
        """Prepare for a leaf's gradient to be replaced."""
        ...

    def recomputing(self) -> AbstractContextManager[object]:
        """Enclose ops that compute dropped values again, so that they are not merged with the first computation."""
        ...
