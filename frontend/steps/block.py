"""Captured blocks: the ops of a `with` statement, recorded and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polyhal.hal.compile.ir.graph import Graph
from polyhal.hal.compile.recording import Recording
from polyhal.hal.compile.scheduler.profile import StepProfile
from polyhal.hal.compile.scheduler.report import MemoryReport
from polyhal.hal.errors import CaptureError, message
from polyhal.hal.ops.top_level import top_level
from polyhal.steps.step import CapturedStep


@top_level
@contextmanager
def capture() -> Iterator[CapturedBlock]:
    """Record the block and run it once at its end: `with capture() as step: ...`, then `step.replay()` any number of times.

    Tensors made in the block have values after it, and new ones after each replay; the tensors that it reads must stay in
    place. Raises CaptureError if Python asks for the value of a tensor, and names the line.
    """
    recording = Recording()
    block = CapturedBlock()
    try:
        with recording:
            yield block
            captured = recording.finish()
        block.step = CapturedStep(captured)
        block.step.run()
    except BaseException:
        recording.abandon()
        raise


class CapturedBlock:
    """The target of `capture`: empty inside the block, a `CapturedStep` after it."""

    step: CapturedStep | None = None

    def replay(self) -> None:
        """Run the block's ops once more. Raises CaptureError inside the block."""
        self.recorded().replay()

    @property
    def graph(self) -> Graph:
        """The recorded graph. Raises CaptureError inside the block."""
        return self.recorded().graph

    def memory_report(self) -> MemoryReport:
        """Report the memory that the block needs, by kind, and its largest tensors. Raises CaptureError inside the block."""
        return self.recorded().memory_report()

    def explain(self) -> str:
        """Report the effect of each pass on the block, and how and why each op runs. Raises CaptureError inside the block."""
        return self.recorded().explain()

    @staticmethod
    def profile() -> StepProfile:
        """Time the captured steps inside a block, node by node: `with block.profile() as p: block.replay()`."""
        return StepProfile()

    def recorded(self) -> CapturedStep:
        """Return the recorded step. Raises CaptureError inside the block."""
        if self.step is None:
            raise CaptureError(message("capture", "the block is still being recorded", fix="use it after the block"))
        return self.step
