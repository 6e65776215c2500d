"""The benchmark cache: results of the device benchmark, in files shared by processes.

There is one file per device, named by a digest of all factors of the speed, which it also contains in clear text. A
file that is damaged, foreign or out of date counts as absent. Files are replaced atomically, and one process benchmarks
at a time, so that the processes of one job neither disturb each other's clocks nor repeat each other's work.

The files are in the cache folder. If it is not writable, they are in a user's folder in the system's temporary folder;
if that also fails, each process runs its own benchmarks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from polyhal.hal.core.plugins.entry_points import UNKNOWN, PluginOrigin, describe
from polyhal.hal.core.plugins.probing import Candidate
from polyhal.hal.core.settings import env, json_store, trust
from polyhal.hal.core.settings.file_lock import FileLock
from polyhal.hal.errors import PolyhalError
from polyhal.hal.system.discovery import processor
from polyhal.hal.system.discovery.benchmark import VERSION, BenchmarkTimes, BenchmarkUnavailableError, run_in_subprocess

_RETRY = timedelta(days=1)
"""Lifetime of a failed benchmark, whose cause may have been a busy machine."""
MARGIN = 1.5
"""Minimum ratio of speeds for which a faster device is preferred to an earlier one."""
_DISTURBANCE = 4.0
"""Factor by which other programs may slow one run down: a device within it of changing the choice runs again."""
_ROUNDS = 4
"""Maximum number of runs of a device."""
_STEADY = 1.1
"""Ratio of two runs of a device up to which they count as equal."""
_POLL = 0.1
"""Seconds between two checks of another process's lock."""
_SILENCE = 2.0
"""Seconds of waiting for another process after which the user is informed."""
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """The result for one device (see `BenchmarkTimes`); times are 0 if the benchmark failed."""

    seconds: float
    numpy_seconds: float
    side: int
    date: str
    """UTC, ISO 8601."""
    problem: str = ""

    @property
    def day(self) -> str:
        """The date without the time."""
        return self.date[:10]


RunBenchmark = Callable[[Candidate, float], BenchmarkTimes]
"""Function that benchmarks a device within a number of seconds. Raises if that fails."""


class BenchmarkCache:
    """Known results, and a way to obtain missing ones."""

    def __init__(self, run: RunBenchmark | None = None, origins: Mapping[str, PluginOrigin] | None = None) -> None:
        self._run = run or run_in_subprocess
        self._origins = origins if origins is not None else {}
        self._results: dict[str, BenchmarkResult | None] = {}
        self._environment: dict[str, str] = {}
        self.skipped = ""
        """Reason why devices were not benchmarked although their order was requested; empty if they were."""

    def lookup(self, candidate: Candidate) -> BenchmarkResult | None:
        """Return the result for a device if there is one. Devices of one model, driver and version share it.

        There are no results if POLYHAL_MEASURE_TIMEOUT is 0, so that the order of devices does not depend on any clock.
        """
        if not env.measure_timeout():
            return None
        key = self.key(candidate)
        name = _digest(key)
        if name not in self._results:
            self._results[name] = _load(name, key)
        return self._results[name]

    def ratio(self, candidate: Candidate) -> float:
        """Return the speed of a device relative to plain NumPy; 0 if it is unknown.

        NumPy's time is the minimum of all processes, so that ratios on one machine are comparable.
        """
        result = self.lookup(candidate)
        if result is None or result.problem:
            return 0.0
        return min(r.numpy_seconds for r in self._results.values() if r is not None and not r.problem) / result.seconds

    def ensure(self, candidates: Sequence[Candidate], *, refresh: bool = False) -> None:
        """Benchmark the candidates that have no result, or with `refresh` all of them. The preferred one comes first.

        Devices that may change the choice run again in turns, until a round makes none of them faster, and the fastest
        run counts: other programs can only make a run slower, and a disturbance of one run does not change the choice.
        No-op if POLYHAL_MEASURE_TIMEOUT is 0, with the reason in `skipped`.
        """
        seconds = env.measure_timeout()
        self.skipped = "" if seconds else "POLYHAL_MEASURE_TIMEOUT is 0"
        if self.skipped or not (refresh or self._missing(candidates)):
            return
        folder = _folder_to_write()
        try:
            with contextlib.nullcontext() if folder is None else _exclusive(folder, patience=2 * seconds) as lock:
                if folder is not None:
                    self._results.clear()  # another process may have benchmarked them while this one waited
                missing = self._distinct(candidates) if refresh else self._missing(candidates)
                if missing:
                    names = ", ".join(c.name for c in missing)
                    notice = f"measuring {names} once, to know the fastest; POLYHAL_DEVICE=NAME does without"
                    print(f"polyhal: {notice}", file=sys.stderr, flush=True)
                for candidate in missing:
                    self._benchmark(candidate, seconds, folder, lock)
                improved, rounds = bool(missing), 1
                while improved and rounds < _ROUNDS:
                    rivals, rounds = self._rivals(candidates), rounds + 1
                    runs = [self._benchmark(c, seconds, folder, lock, again=True) for c in rivals]
                    improved = any(runs)
        except (BenchmarkUnavailableError, OSError) as error:
            self.skipped = describe(error)

    def differ(self, candidates: Sequence[Candidate]) -> bool:
        """Return whether the candidates can differ in speed. Identical cards cannot."""
        return len(self._distinct(candidates)) > 1

    def key(self, candidate: Candidate) -> dict[str, str]:
        """Return all factors of a device's speed that are known without opening the device."""
        origin = self._origins.get(candidate.backend.name, UNKNOWN)
        info = candidate.info
        self._environment = self._environment or {
            "polyhal": _polyhal_version(),
            "machine": machine(),
            "work": str(VERSION),
        }
        return {
            "backend": candidate.backend.name,
            "device": info.name,
            "type": info.type.value,
            "driver": info.driver,
            "plug-in": str(origin),
            **self._environment,
        }

    def _distinct(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return one candidate per key."""
        return list({_digest(self.key(c)): c for c in reversed(candidates)}.values())[::-1]

    def _missing(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        return [c for c in self._distinct(candidates) if self.lookup(c) is None]

    def _rivals(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates among which a disturbed run may have decided; empty if there is a single one."""
        valid = [
            (r.seconds, c) for c in self._distinct(candidates) if (r := self.lookup(c)) is not None and not r.problem
        ]
        most = _DISTURBANCE * MARGIN * min((seconds for seconds, _ in valid), default=0.0)
        rivals = [c for seconds, c in valid if seconds <= most]
        return rivals if len(rivals) > 1 else []

    def _benchmark(
        self, candidate: Candidate, seconds: float, folder: Path | None, lock: FileLock | None, *, again: bool = False
    ) -> bool:
        """Benchmark a device and store the result; with `again`, keep the better of two results.

        Returns whether the result is clearly better than the one before.
        """
        if lock is not None:
            lock.touch()
        key = self.key(candidate)
        date = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            times = self._run(candidate, seconds)
            result = BenchmarkResult(*times, date)
            if not _is_plausible(result):
                raise ValueError(f"invalid times: {times}")
        except BenchmarkUnavailableError:
            raise
        except Exception as error:  # drivers raise anything; the device comes last, with the reason
            result = BenchmarkResult(0.0, 0.0, 0, date, describe(error))
        name = _digest(key)
        before = self._results.get(name)
        if again and before is not None and (result.problem or before.seconds < result.seconds):
            return False
        self._results[name] = result
        if folder is not None:
            with contextlib.suppress(OSError):  # a full disk costs another benchmark, later
                json_store.write(folder / name, {"schema": _SCHEMA, "key": key, "speed": asdict(result)})
        return before is not None and before.seconds > _STEADY * result.seconds


def machine() -> str:
    """Return the processor's model and the number of cores available to this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{processor.model()}, {cores} cores"


def _polyhal_version() -> str:
    try:
        return version("polyhal")
    except PackageNotFoundError:  # run from a folder that is not installed
        return ""


def _folders() -> list[Path]:
    """Return the folders of results, the preferred one first."""
    user = os.getuid() if hasattr(os, "getuid") else "speeds"  # on Windows, the temporary folder is per user
    return [env.cache_dir() / "speeds", Path(tempfile.gettempdir()) / f"polyhal-{user}"]


def _folder_to_write() -> Path | None:
    """Return the first writable folder, created if it is missing; None if there is none."""
    for folder in _folders():
        with contextlib.suppress(OSError):
            if os.access(trust.private_folder(folder), os.W_OK):
                return folder
    return None


def _digest(key: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24] + ".json"


def _load(name: str, key: Mapping[str, str]) -> BenchmarkResult | None:
    """Return the result in a file of one of the folders, or None if there is no usable one."""
    found = (_read(folder / name, key) for folder in _folders() if not trust.distrust(folder))
    return next((result for result in found if result is not None), None)


def _read(path: Path, key: Mapping[str, str]) -> BenchmarkResult | None:
    """Return the result in a file, or None if it is not usable."""
    try:
        content = json_store.read(path, _SCHEMA)
        if content["key"] != key:
            return None
        result = BenchmarkResult(**content["speed"])
        if not isinstance(result.problem, str) or type(result.side) is not int:
            return None
        age = datetime.now(UTC) - datetime.fromisoformat(result.date)
        usable = age < _RETRY if result.problem else _is_plausible(result)
    except (OSError, PolyhalError, ValueError, TypeError, KeyError):
        return None
    return result if usable else None


def _is_plausible(result: BenchmarkResult) -> bool:
    return 0 < result.seconds < math.inf and 0 < result.numpy_seconds < math.inf and result.side > 0


@contextlib.contextmanager
def _exclusive(folder: Path, patience: float) -> Iterator[FileLock]:
    """Wait until no other process benchmarks.

    A process that has not touched its lock for `patience` seconds is considered hung and ignored.
    """
    lock = FileLock(folder / "measuring.lock")
    start, informed = time.monotonic(), False
    while not lock.acquire():
        with contextlib.suppress(OSError):
            if time.time() - lock.path.stat().st_mtime > patience:
                lock.path.unlink()
                continue
        if not informed and time.monotonic() - start > _SILENCE:
            informed = True
            notice = f"waiting for another process that measures devices ({lock.path})"
            print(f"polyhal: {notice}", file=sys.stderr, flush=True)
        time.sleep(_POLL)
    try:
        yield lock
    finally:
        lock.release()
