"""The interface by which a holder of arrays has work recorded as a graph, and runs it again on other arrays.

    with Recording() as recording:
        recording.argument(x)
        y = FUNCTIONS["relu"](x)
        recording.results([y])
        del y
    program = recording.program()
    (z,) = program.run([other])

Arrays that are neither arguments nor made in the recording are found by their memory: each run reads them there, and
repeats the writes of the recording. An array made in the recording that something still refers to after `finish` gets its
new memory after each run, whoever holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.capture.fake_buffer import FAKE_HANDLE, FakeBuffer
from polyhal.hal.compile.capture.op_by_op import run_op_by_op
from polyhal.hal.compile.capture.recorder import StepRecorder
from polyhal.hal.compile.capture.result import CapturedGraph, StepInput
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import Array, Executor
from polyhal.hal.layout import Ref, Spec

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np

    from polyhal.hal.device import Device


class Recording:
    """Records the ops that this thread calls inside a `with` block; nothing runs. An error in the block abandons it."""

    def __init__(self, previous: Recording | None = None) -> None:
        """A recording may follow a `previous` one, as a backward pass does; `forwarded` lists its inputs from that one."""
        self.recorder: StepRecorder = StepRecorder(None if previous is None else previous.recorder)
        self._results: list[int] = []
        self._memories: list[int | None] = []
        """Memory of each result; None for a value that the program does not receive."""
        self._scope: AbstractContextManager[None] | None = None
        self._captured: CapturedGraph | None = None
        self._outer: Executor = dispatch.EAGER
        self._is_left = False

    def __enter__(self) -> Recording:
        self._outer = dispatch.thread.executor
        self._scope = dispatch.executing(self.recorder)
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._scope is not None:
            self._scope.__exit__(None, None, None)
        if error is not None:
            self.abandon()

    @property
    def forwarded(self) -> list[StepInput | int]:
        """Arguments of the previous recording, and values for `pass_on`, that this one uses."""
        return self.recorder.forwarded

    def argument(self, x: Array) -> int:
        """Let every run be given another array in place of `x`. Returns its position among a run's arguments.

        A view is an argument with all views of it if it is contiguous, and else only in its own layout.
        """
        return self.recorder.add_input(x)

    def make_argument(self, x: Array) -> int:
        """Make `x`, a new array, an argument; its elements serve only the recording."""
        x.buffer, x.ref = FakeBuffer(x.ref.spec.nbytes), Ref(FAKE_HANDLE, x.ref.spec, 0)
        self.recorder.track(x)
        return self.recorder.add_input(x)

    def placeholder(self, device: Device, spec: Spec) -> Any:
        """Return an array that represents an argument of this shape, dtype and layout while recording."""
        return self.recorder.add_fake_input(device, spec)

    def made(self, x: Array) -> bool:
        """Return whether an array was made in the recording, in new memory or in the memory of another array."""
        return self.recorder.made(x)

    def results(self, arrays: Iterable[Array]) -> None:
        """Let every run return the arrays' current elements, after the results so far.

        Let go of them before `finish`: they would be kept up to date after each run as well.
        """
        for x in arrays:
            self._results.append(self.recorder.value_of(x))
            self._memories.append(self.recorder.memory_of(x))

    def assign(self, pairs: Iterable[tuple[Array, Any]]) -> None:
        """Assign a value to each array, all at once: every value is read before any array is written.

        A value is an array or a number of the same shape and dtype, and may share memory with any of the arrays.
        """
        self.recorder.assign(pairs)

    def pass_on(self, values: Iterable[int]) -> None:
        """Let every run return values of the graph that a following recording needs, after the results so far."""
        self._results += values
        self._memories += [None] * (len(self._results) - len(self._memories))

    def finish(self) -> CapturedGraph:
        """End the recording. Returns its graph, which can be compared with that of another one."""
        if self._captured is None:
            self._captured = self.recorder.finish(self._results, self._memories)
        return self._captured

    def program(self, budget: int | None = None) -> Executable:
        """End the recording. Returns it ready to run, within `budget` bytes on each device. Raises OutOfMemoryError."""
        return Executable(self.finish(), budget)

    def known(self, x: Array, arguments: Sequence[Array]) -> np.ndarray | None:
        """Return the elements of `x` in this call, given the arguments so far; None if they depend on another device."""
        return self.recorder.known(x, self._outer, arguments)

    def expect(self, x: Array, element: np.ndarray) -> None:
        """Let each run raise PathChangedError, before it has any effect, if `x` has another element at this point."""
        self.recorder.expect(x, element)

    def abandon(self) -> None:
        """Roll back the recorded changes to Python's objects: state, gradients, versions of buffers. No-op after `leave`."""
        if not self._is_left:
            self.recorder.abandon()

    def leave(self, arguments: Sequence[Array]) -> Executor:
        """End the recording in the middle of a program: run the recorded ops once, one by one, on these arguments.

        Arrays that were made in the recording then have memory, and bitwise the elements that eager ops give them. Returns the
        executor for the rest of the program. Raises the errors of the ops, with all arrays from outside as they were.
        """
        with dispatch.executing(self._outer):
            run_op_by_op(self.recorder.finish([], []), arguments)
        self._is_left = True
        return self._outer
