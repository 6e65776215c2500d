"""Subprocesses that carry out part of a command's work and report it as lines of JSON on standard output.

A driver that crashes or hangs then ends only its subprocess, whose messages on standard error can be shown.
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
from typing import IO, Any, NamedTuple

_SHOWN_LINES = 3
"""Number of last lines of a failed process's standard error that are shown."""


class Message(NamedTuple):
    """One line of JSON from a worker, or its exit: the last message of each worker has an exit code."""

    worker: int
    content: dict[str, Any]
    exit_code: int | None = None
    stderr: str = ""
    """Last lines of standard error, in the last message."""


class WorkerPool:
    """Subprocesses that run the same module, each with its own arguments. Leaving the context kills those still running."""

    def __init__(
        self, module: str, arguments: Sequence[Sequence[str]], environment: Mapping[str, str] | None = None
    ) -> None:
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        self._queue: queue.Queue[Message] = queue.Queue()
        self._processes: list[subprocess.Popen[str]] = []
        # Workers neither benchmark devices nor start background builds of their own.
        own = {"PYTHONPATH": path, "POLYHAL_MEASURE_TIMEOUT": "0", "POLYHAL_BUILD_AHEAD": "0"}
        env = {**os.environ, **own, **(environment or {})}
        for worker, args in enumerate(arguments):
            stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed by _follow
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                errors="replace",
                env=env,
            )
            self._processes.append(process)
            threading.Thread(target=self._follow, args=(worker, process, stderr), daemon=True).start()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def messages(self, timeout: float) -> Iterator[Message]:
        """Yield messages until all workers have exited. Raises TimeoutError if none arrives within `timeout` seconds."""
        running = len(self._processes)
        while running:
            try:
                message = self._queue.get(timeout=timeout)
            except queue.Empty:
                raise TimeoutError(f"no answer within {timeout:g} s") from None
            running -= message.exit_code is not None
            yield message

    def _follow(self, worker: int, process: subprocess.Popen[str], stderr: IO[str]) -> None:
        """Enqueue the messages of one worker; runs in a thread."""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                try:
                    content = json.loads(line)
                except ValueError:  # drivers print to standard output, too
                    continue
                if isinstance(content, dict):
                    self._queue.put(Message(worker, content))
        exit_code = process.wait()
        with stderr:
            stderr.seek(0)
            lines = [text for text in stderr.read().splitlines() if text.strip()]
        self._queue.put(Message(worker, {}, exit_code, "\n".join(lines[-_SHOWN_LINES:])))


def send(**content: Any) -> None:
    """Send a message from a worker to the command."""
    print(json.dumps(content), flush=True)
