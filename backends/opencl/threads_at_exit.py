"""Threads that are still at work when Python ends must not abort the process.

Before Python 3.14, a thread that asks for the interpreter after its end is ended itself, by unwinding its stack. The C++
functions of the driver's binding do not allow that: the process is aborted. Threads of the program that were left running, and
callbacks of the driver, meet this at random. So threads that use devices are asked to end by SystemExit while they still can,
after all that the program waits for is delivered, and what is in a C++ function even then waits for the end of the process.
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

from polyhal.hal.memory.last_at_exit import do_last

_PATIENCE = 1.0
"""Seconds that threads have to end."""
_POLL = 0.001
_WAITING = (threading.__name__, queue.__name__)
"""Modules in which a thread that waits has its innermost function: it asks for nothing any more."""


@functools.cache
def end_threads_at_exit() -> None:
    """Arrange it for this process. Called when a device is opened."""
    if sys.version_info < (3, 14):
        do_last(_end_threads)


def _end_threads() -> None:
    deadline = time.monotonic() + _PATIENCE
    asked: set[int] = set()
    report = sys.unraisablehook

    def ask_again(unraisable: sys.UnraisableHookArgs) -> None:
        """A thread that SystemExit meets while it releases an object would report that, and go on."""
        if unraisable.exc_type is SystemExit and threading.get_ident() in asked:
            asked.discard(threading.get_ident())
        else:
            report(unraisable)

    sys.unraisablehook = ask_again
    while (busy := set(_busy_threads())) and time.monotonic() < deadline:
        for thread in busy - asked:
            asked.add(thread)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))
        time.sleep(_POLL)
    with contextlib.suppress(AttributeError, OSError):  # another C++ library
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
        set_terminate.restype = ctypes.c_void_p
        set_terminate(ctypes.CDLL(None).pause)


def _busy_threads() -> Iterator[int]:
    """Other threads within a function of Polyhal, unless they wait for each other."""
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
