"""Prevent threads that are still running at interpreter exit from aborting the process.

Before Python 3.14, a thread that acquires the GIL after finalization is terminated by unwinding its stack. The C++
functions of pyopencl do not allow that: the process is aborted. This happens at random to threads that the program left
running and to callbacks of the driver. So SystemExit is raised in threads that use devices before finalization, after
all awaited results have been delivered, and a thread that is still in a C++ function blocks there until the process
ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import queue
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from polyhal.hal.core.memory.last_at_exit import do_last

_PATIENCE = 1.0
"""Seconds to wait for the threads' end."""
_POLL = 0.001
_WAITING = (threading.__name__, queue.__name__)
"""Modules of the innermost function of waiting threads, which do not acquire the GIL at exit."""


@functools.cache
def end_threads_at_exit() -> None:
    """Register the exit handler of this process. Runs when a device is opened."""
    if sys.version_info < (3, 14):
        do_last(_end_threads)


def _end_threads() -> None:
    deadline = time.monotonic() + _PATIENCE
    interrupted: set[int] = set()
    report = sys.unraisablehook

    def interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
        """Interrupt a thread again if SystemExit was raised in a destructor, where Python only reports it."""
        if unraisable.exc_type is SystemExit and threading.get_ident() in interrupted:
            interrupted.discard(threading.get_ident())
        else:
            report(unraisable)

    sys.unraisablehook = interrupt_again
    while (busy := set(_busy_threads())) and time.monotonic() < deadline:
        for thread in busy - interrupted:
            interrupted.add(thread)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))
        time.sleep(_POLL)
    with contextlib.suppress(AttributeError, OSError):  # another C++ library
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
        set_terminate.restype = ctypes.c_void_p
        set_terminate(ctypes.CDLL(None).pause)


def _busy_threads() -> Iterator[int]:
    """Return other threads inside a function of Polyhal, unless they wait for each other."""
    for thread, innermost in sys._current_frames().items():
        if thread == threading.get_ident() or _module(innermost) in _WAITING:
            continue
        frame: FrameType | None = innermost
        while frame is not None:
            if _module(frame).partition(".")[0] == "polyhal":
                yield thread
                break
            frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
