"""Python processes that do a part of a command's work and tell of it in lines of JSON on standard output.

A driver that crashes or hangs then takes only its process along, and what it says on standard error is there to be shown.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

_SAID = 3
"""Last lines of standard error that are shown of a process that failed."""


class Message(NamedTuple):
    """What a process said; the last one of each process has its exit code."""

    worker: int
    content: dict[str, Any]
    code: int | None = None
    said: str = ""
    """The end of its standard error, once it has ended."""


class Workers:
    """Some processes that run the same module. Leaving the context ends those that still run."""

    def __init__(self, module: str, arguments: Sequence[Sequence[str]], environment: Mapping[str, str]) -> None:
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        self._queue: queue.Queue[Message] = queue.Queue()
        self._processes: list[subprocess.Popen[str]] = []
        # A process inherits neither this one's device nor its measurements in progress.
        env = (
            os.environ
            | {"PYTHONPATH": path, "POLYHAL_MEASURE_TIMEOUT": "0", "POLYHAL_BUILD_AHEAD": "0"}
            | dict(environment)
        )
        for i, given in enumerate(arguments):
            errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed by _follow
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *given],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace", env=env,
            )  # fmt: skip
            self._processes.append(process)
            threading.Thread(target=self._follow, args=(i, process, errors), daemon=True).start()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def messages(self, silence: float) -> Iterator[Message]:
        """What they say, until all have ended. Raises TimeoutError where nobody says anything for `silence` seconds."""
        running = len(self._processes)
        while running:
            try:
                message = self._queue.get(timeout=silence)
            except queue.Empty:
                raise TimeoutError(f"no answer within {silence:g} s") from None
            running -= message.code is not None
            yield message

    def _follow(self, worker: int, process: subprocess.Popen[str], errors: Any) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                try:
                    content = json.loads(line)
                except ValueError:  # drivers write what they like
                    continue
                if isinstance(content, dict):
                    self._queue.put(Message(worker, content))
        code = process.wait()
        with errors:
            errors.seek(0)
            said = [text for text in errors.read().splitlines() if text.strip()]
        self._queue.put(Message(worker, {}, code, "\n".join(said[-_SAID:])))


def tell(**content: Any) -> None:
    """In a worker: say something."""
    print(json.dumps(content), flush=True)
