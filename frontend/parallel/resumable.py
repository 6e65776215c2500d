"""Calls that can be suspended and resumed: micro-batches between stages, replicas that wait for one another.

Python cannot suspend a call from outside, such as a model's `forward` between two of its layers. So the call runs on a thread
of its own, which starts with the modes of the thread that resumes it first. Of the suspended threads and the resuming
thread, exactly one runs at any time, in an order that does not depend on timing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from typing import Any

from polyhal.hal.core import dispatch
from polyhal.hal.core.memory.stream_selection import StreamSelection
from polyhal.hal.device import Device


class _AbandonedError(BaseException):
    """Unwinds a call that will not be resumed."""


class ResumableCall:
    """A call of `function` that starts with the first `resume` and may `pause`.

    It inherits the modes of the thread that starts it: executor, tape, context variables, and the streams of `devices`.
    """

    def __init__(self, function: Callable[[], Any], devices: Sequence[Device]) -> None:
        self._function = function
        self._devices = devices
        self._turn = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._abandoned = False
        self._error: BaseException | None = None
        self.done = False
        self.result: Any = None

    def resume(self) -> None:
        """Run until the next pause, or to completion. Raises the function's error."""
        if self._thread is None:
            selections = [StreamSelection(d) for d in dict.fromkeys(self._devices)]
            arguments = self._run, dict(vars(dispatch.thread)), selections
            self._thread = threading.Thread(
                target=copy_context().run, args=arguments, name="polyhal-resumable", daemon=True
            )
            self._thread.start()
        self._turn.release()
        self._paused.acquire()
        if self.done:
            self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def pause(self) -> None:
        """Return control to the caller of `resume`; called by the function itself."""
        self._paused.release()
        self._turn.acquire()
        if self._abandoned:
            raise _AbandonedError

    def abandon(self) -> None:
        """End a call that is not complete."""
        if self._thread is not None and not self.done:
            self._abandoned = True
            self._turn.release()
            self._thread.join()
        self._function = _nothing

    def _run(self, state: dict[str, Any], selections: Sequence[StreamSelection]) -> None:
        self._turn.acquire()
        vars(dispatch.thread).update(state)
        try:
            if not self._abandoned:
                with ExitStack() as stack:
                    for selection in selections:
                        stack.enter_context(selection.on_this_thread())
                    self.result = self._function()
        except _AbandonedError:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._function = _nothing
            vars(dispatch.thread).clear()
            self.done = True
            self._paused.release()


def _nothing() -> None:
    return None
