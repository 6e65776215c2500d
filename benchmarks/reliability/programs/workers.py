"""The processes of a campaign. Each runs one program after another; one that dies is replaced, and its program is a finding."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from benchmarks.reliability.processes import ROOT, environment

Result = dict[str, Any]
"""The counts and findings of one program, see `worker.one`."""
LIFE = 4000
"""Programs per process: its start takes as long as hundreds of programs, and memory that a driver leaks must return."""
PATIENCE = 300
"""Seconds that one program may take, with the kernels that it builds. After them its process prints its stacks and ends."""
_LINES = 40
"""Lines of a dead process's last words in a finding."""


def results(device: str, seeds: Iterator[int], jobs: int) -> Iterator[Result]:
    """Run the programs of seeds in so many processes. Yields their results in the order in which they end."""
    done: queue.SimpleQueue[Result | None] = queue.SimpleQueue()
    shared = _Shared(seeds)
    for _ in range(jobs):
        threading.Thread(target=_serve, args=(device, shared, done), daemon=True).start()
    running = jobs
    while running:
        result = done.get()
        if result is None:
            running -= 1
        else:
            yield result


class _Shared:
    """An iterator of several threads."""

    def __init__(self, seeds: Iterator[int]) -> None:
        self._seeds = seeds
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        with self._lock:
            return next(self._seeds)


def _serve(device: str, seeds: Iterator[int], done: queue.SimpleQueue[Result | None]) -> None:
    """Run seeds in one process after another."""
    worker = None
    try:
        for seed in seeds:
            worker = worker or _Worker(device)
            result = worker.run(seed)
            done.put(result)
            if result["last"]:
                worker.close()
                worker = None
        if worker is not None:
            worker.close()
    finally:
        done.put(None)


class _Worker:
    """A process that reads seeds from its standard input, see `worker.main`."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        settings = environment(
            OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", POCL_AFFINITY="0", POLYHAL_MEASURE_TIMEOUT="0"
        )
        # -P: modules come from PYTHONPATH, never from the folder in which the campaign was started.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "benchmarks.reliability.programs.worker", device],
            text=True,
            env=settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def run(self, seed: int) -> Result:
        """Run the program of a seed. If the process dies, its mode and its last words are the finding."""
        mode = "start"
        with contextlib.suppress(BrokenPipeError):
            print(seed, file=self._process.stdin, flush=True)
        for line in self._process.stdout or ():
            if line.startswith("{"):
                result: Result = json.loads(line)
                return result
            mode = line.strip()
        return nothing(seed) | {"last": True, "findings": [self._death(seed, mode)]}

    def close(self) -> None:
        """Let the process end, and wait for it."""
        self._process.communicate()
        self._errors.close()

    def _death(self, seed: int, mode: str) -> str:
        code = self._process.wait()
        how = f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"
        self._errors.seek(0)
        words = "\n".join(self._errors.read().splitlines()[-_LINES:])
        again = f"echo {seed} | {sys.executable} -m benchmarks.reliability.programs.worker {self._device}"
        cause = f"the process ended with {how}; again, in {ROOT}:\n  {again}"
        return f"seed {seed}, {mode}: {cause}\n{words}\n{_text(seed, self._device)}"


def _text(seed: int, device: str) -> str:
    from benchmarks.reliability.programs.generate import generate
    from benchmarks.reliability.programs.reduce import as_test

    return as_test(generate(seed, device))


def nothing(seed: int) -> Result:
    """Return the result of a program that did not run."""
    return {
        "seed": seed,
        "statements": 0,
        "ops": [],
        "modes": {},
        "refused": 0,
        "known": {},
        "findings": [],
        "last": False,
    }
