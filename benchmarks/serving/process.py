"""A server in a process of its own, and its resources: memory, open files, threads, requests."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from benchmarks.serving.connection import get

_START = 600.0
"""Seconds for loading a model."""
_END = 60.0
_SETTLES = 20


class Held(NamedTuple):
    """Resources of a server at one moment."""

    resident: int
    """Bytes of the process in RAM; 0 if the system does not report it, as for files and threads."""
    device: int
    """Bytes in use in the device's pool."""
    files: int
    threads: int
    running: int
    waiting: int


class ServerProcess:
    """`polyhal serve` with a free port."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Start it, and wait until it listens. Raises RuntimeError with its output if it ends."""
        self._out = tempfile.NamedTemporaryFile("w+b", prefix="polyhal-serve-")  # noqa: SIM115
        command = [sys.executable, "-m", "polyhal", "serve", *arguments, "--port", "0"]
        self._process = subprocess.Popen(command, stdout=self._out, stderr=subprocess.STDOUT)
        self.port = self._wait_for_port()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=_END):
            pass
        self._quiet = len(self.output)

    @property
    def output(self) -> str:
        """The text that it wrote so far."""
        return Path(self._out.name).read_text(encoding="utf-8", errors="replace")

    @property
    def is_alive(self) -> bool:
        """True if it runs."""
        return self._process.poll() is None

    def complaints(self) -> str:
        """Return the text that it wrote after its start."""
        return self.output[self._quiet :].strip()

    async def held(self) -> Held:
        """Measure its resources now."""
        _, text = await get(self.port, "/metrics")
        metrics = dict(re.findall(r"^polyhal_(\w+) (\S+)$", text.decode(), re.MULTILINE))
        running, waiting, device = (int(metrics[k]) for k in ("running", "waiting", "device_memory_bytes"))
        folder = Path(f"/proc/{self._process.pid}")
        if not folder.is_dir():
            return Held(0, device, 0, 0, running, waiting)
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        files = len(os.listdir(folder / "fd"))
        return Held(int(status["VmRSS"].split()[0]) * 1024, device, files, int(status["Threads"]), running, waiting)

    async def settled(self, before: Held) -> Held:
        """Measure its resources once its clients are gone: when files and threads are not above `before`, or do not end."""
        for _ in range(_SETTLES):
            now = await self.held()
            if now.files <= before.files and now.threads <= before.threads:
                break
            await asyncio.sleep(0.1)
        return now

    def stop(self) -> int:
        """End it as Ctrl-C does. Returns its exit code. Raises TimeoutExpired if it does not end."""
        if self.is_alive:
            self._process.send_signal(signal.SIGINT)
        return self._process.wait(_END)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.is_alive:
            self._process.kill()
            self._process.wait()
        self._out.close()

    def _wait_for_port(self) -> int:
        end = time.monotonic() + _START
        while time.monotonic() < end:
            joined = "".join(self.output.split())  # a narrow terminal wraps the line
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/v1", joined):
                return int(found[1])
            if not self.is_alive:
                raise RuntimeError(f"the server ended: {self.output.strip()}")
            time.sleep(0.05)
        self._process.kill()
        raise RuntimeError(f"the server did not start in {_START:.0f} s: {self.output.strip()}")
