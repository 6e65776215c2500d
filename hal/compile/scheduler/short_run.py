"""Runs of short steps with the least work of the host: one command buffer that computes one result.

The host needs longer for such a run than most devices. `Executable.run` is the general form; both have the same effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from polyhal.hal.compile.capture.replay_log import replay
from polyhal.hal.compile.scheduler.partitions import note_failure
from polyhal.hal.core import dispatch
from polyhal.hal.core.dispatch import Array
from polyhal.hal.core.settings.state import settings
from polyhal.hal.protocol import SupportsFlush

if TYPE_CHECKING:
    from polyhal.hal.compile.scheduler.executable import Executable


_UNUSED = 3
"""References to a buffer that only its `ResultMemory` uses: of that, of `run` and of the argument of `getrefcount`."""


def short_run(executable: Executable) -> Callable[[Sequence[Array]], Any] | None:
    """Return a function that runs a step with arrays for its arguments, and returns its only result; None for longer steps.

    The calling thread must have no timer.
    """
    captured, partitions, results = executable.captured, executable.partitions, executable.results
    commands = partitions[0].recorded if len(partitions) == 1 else None
    changed = captured.live_outs or captured.mutated_buffers or captured.mutated_inputs or executable.plan.gradients
    if (
        commands is None
        or executable.workers is not None
        or changed
        or len(results) != 1
        or results[0].home is not None
    ):
        return None
    partition, output = partitions[0], executable.outputs[0]
    result, device, wrap = output.memory, output.device, dispatch.frontend.wrap
    arguments, moved, actions = executable.arguments, executable.moved, captured.replay_actions
    enqueue, flush = commands.submit, device.flush if isinstance(device.backend, SupportsFlush) else None
    structure, forks, live_outs = dispatch.structure, executable.forks, captured.live_outs

    def submit() -> None:
        try:
            enqueue(moved)
            if flush is not None:
                flush()
        except Exception as error:
            note_failure(error, partition)
            raise

    work = partial(replay, actions, submit) if actions else submit

    def run(arrays: Sequence[Array]) -> Any:
        if (
            executable.partitions is not partitions
            or settings.is_observed
            or structure.forks != forks
            or captured.live_outs is not live_outs
        ):
            return executable.run(arrays, 1)[0]
        for position, binding in arguments:
            ref, slot = arrays[position].ref, binding.slot
            if (slot.handle is not ref.handle or slot.offset != ref.offset) and binding.bind(ref.handle, ref.offset):
                moved.append(slot)
        buffer: Any = result.buffer
        if getrefcount(buffer) != _UNUSED or buffer is None:
            if result.renew():
                moved.append(result.binding.slot)
            buffer = result.buffer
        work()
        if moved:
            moved.clear()
        return wrap(device, buffer, output.fixed())

    return run
