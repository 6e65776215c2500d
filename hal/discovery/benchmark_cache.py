"""How fast the devices of this machine are: measured once each, remembered in files that processes share.

One file per device, under a digest of everything that the speed depends on; it holds that in clear, too. A file that is
torn, foreign or out of date counts as absent. Files are replaced atomically, and one process measures at a time, so that
the processes of one job neither disturb each other's clocks nor repeat each other's work.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from polyhal.hal.discovery.benchmark import VERSION, CannotMeasureError, Figures, in_a_process
from polyhal.hal.discovery.plugins import UNKNOWN, Origin, describe
from polyhal.hal.discovery.probing import Candidate
from polyhal.hal.errors import PolyhalError
from polyhal.hal.settings import env, json_store

_RETRY = timedelta(days=1)
"""How long a failed measurement stands: what made it fail may have been a busy machine."""
_NEAR = 1.5
"""How many times as long as the fastest a device may take to be measured a second time: other programs disturb by less."""
_POLL = 0.1
"""Seconds between two looks at another process's lock."""
_SILENCE = 2.0
"""Seconds of waiting for it after which the user is told."""
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Speed:
    """What a measurement found; 0 where it failed. Devices of one kind did the same work."""

    seconds: float
    numpy_seconds: float
    side: int
    """How much work it was (see `polyhal.hal.discovery.benchmark.Sizes`)."""
    date: str
    """UTC, ISO 8601."""
    problem: str = ""

    @property
    def day(self) -> str:
        return self.date[:10]


Measure = Callable[[Candidate, float], Figures]
"""Measures a device within a number of seconds. Raises where that fails."""


class Speeds:
    """The remembered speeds, and the way to find those that are missing."""

    def __init__(self, measure: Measure | None = None, origins: Mapping[str, Origin] | None = None) -> None:
        self._measure = measure or in_a_process
        self._origins = origins if origins is not None else {}
        self._known: dict[str, Speed | None] = {}
        self._here: dict[str, str] = {}
        self.refusal = ""
        """Why devices were not measured although their order was asked for; empty where they were."""

    def known(self, candidate: Candidate) -> Speed | None:
        """The speed as far as it was measured. Devices of one model, driver and version share it. Measures nothing.

        Nothing is known where POLYHAL_MEASURE_TIMEOUT is 0, so that the order of devices then depends on no clock at all.
        """
        if not env.measure_timeout():
            return None
        key = self.key(candidate)
        name = _digest(key)
        if name not in self._known:
            self._known[name] = _load(_folder() / name, key)
        return self._known[name]

    def ratio(self, candidate: Candidate) -> float:
        """How many times as fast as plain NumPy the device is; 0 where that is not known.

        NumPy counts as fast as the fastest process that did this work in it, so that figures of one machine compare.
        """
        speed = self.known(candidate)
        if speed is None or speed.problem:
            return 0.0
        same = [s.numpy_seconds for s in self._known.values() if s is not None and s.side == speed.side]
        return min(same) / speed.seconds

    def ensure(self, candidates: Sequence[Candidate], *, anew: bool = False) -> None:
        """Measure the candidates that were not measured before, or all of them, and remember what is found.

        Measures nothing where POLYHAL_MEASURE_TIMEOUT is 0 or where nothing could be remembered: see `refusal`.
        """
        seconds = env.measure_timeout()
        self.refusal = _refusal(seconds)
        if self.refusal or not (anew or self._missing(candidates)):
            return
        try:
            with _turn(_folder(), patience=2 * seconds) as lock:
                self._known.clear()  # another process may have measured them meanwhile
                missing = self._distinct(candidates) if anew else self._missing(candidates)
                if missing:
                    names = ", ".join(c.name for c in missing)
                    what = f"measuring {names} once, to know the fastest; POLYHAL_DEVICE=NAME does without"
                    print(f"polyhal: {what}", file=sys.stderr, flush=True)
                for candidate in missing:
                    lock.touch()
                    self._remember(candidate, seconds)
                for candidate in self._close(candidates) if missing else ():
                    lock.touch()
                    self._remember(candidate, seconds, again=True)
        except (CannotMeasureError, OSError) as error:
            self.refusal = describe(error)

    def differ(self, candidates: Sequence[Candidate]) -> bool:
        """Whether there is more than one speed to be expected among them: identical cards have one."""
        return len(self._distinct(candidates)) > 1

    def key(self, candidate: Candidate) -> dict[str, str]:
        """Everything that the speed of a device depends on, as far as it can be known without opening it."""
        where = self._origins.get(candidate.backend.name, UNKNOWN)
        info = candidate.info
        self._here = self._here or {"polyhal": _own_version(), "machine": machine(), "work": str(VERSION)}
        return {
            "backend": candidate.backend.name,
            "device": info.name,
            "type": info.type.value,
            "driver": info.driver,
            "plug-in": str(where),
            **self._here,
        }

    def _distinct(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        return list({_digest(self.key(c)): c for c in reversed(candidates)}.values())[::-1]

    def _missing(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        return [c for c in self._distinct(candidates) if self.known(c) is None]

    def _close(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those whose place at the head depends on a second look, because others did the same work about as fast."""
        sound = [(c, s) for c in self._distinct(candidates) if (s := self.known(c)) is not None and not s.problem]
        best = {side: min(s.seconds for _, s in sound if s.side == side) for side in {s.side for _, s in sound}}
        near = [(c, s.side) for c, s in sound if s.seconds < _NEAR * best[s.side]]
        return [c for c, side in near if sum(side == other for _, other in near) > 1]

    def _remember(self, candidate: Candidate, seconds: float, *, again: bool = False) -> None:
        """Measure a device and keep what is found; `again` keeps the better of that and of what was known."""
        key = self.key(candidate)
        date = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            figures = self._measure(candidate, seconds)
            speed = Speed(*figures, date)
            if not _sound(speed):
                raise ValueError(f"the clock went wrong: {figures}")
        except CannotMeasureError:
            raise
        except Exception as error:  # drivers raise anything; the device comes last, with the reason
            speed = Speed(0.0, 0.0, 0, date, describe(error))
        name = _digest(key)
        before = self._known.get(name)
        if again and before is not None and (speed.problem or before.seconds < speed.seconds):
            return
        self._known[name] = speed
        with contextlib.suppress(OSError):  # a full disk costs another measurement, later
            json_store.write(_folder() / name, {"schema": _SCHEMA, "key": key, "speed": asdict(speed)})


def machine() -> str:
    """The processor's model and how many cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {cores} cores"


def _processor() -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            label, _, value = line.partition(":")
            if label.strip() in ("model name", "Model", "cpu model"):
                return value.strip()
    return platform.processor() or platform.machine()


def _own_version() -> str:
    try:
        return version("polyhal")
    except PackageNotFoundError:  # run from a folder that is not installed
        return ""


def _folder() -> Path:
    return env.cache_dir() / "speeds"


def _digest(key: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24] + ".json"


def _refusal(seconds: float) -> str:
    if not seconds:
        return "POLYHAL_MEASURE_TIMEOUT is 0"
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"{folder} cannot be made: {describe(error)}"
    return "" if os.access(folder, os.W_OK) else f"{folder} cannot be written to"


def _load(path: Path, key: Mapping[str, str]) -> Speed | None:
    """The speed in a file, or None where there is none that can be used."""
    try:
        found = json_store.read(path, _SCHEMA)
        if found["key"] != key:
            return None
        speed = Speed(**found["speed"])
        age = datetime.now(UTC) - datetime.fromisoformat(speed.date)
        usable = age < _RETRY if speed.problem else _sound(speed)
    except (OSError, PolyhalError, ValueError, TypeError, KeyError):
        return None
    return speed if usable else None


def _sound(speed: Speed) -> bool:
    return 0 < speed.seconds < math.inf and 0 < speed.numpy_seconds < math.inf and speed.side > 0


@contextlib.contextmanager
def _turn(folder: Path, patience: float) -> Iterator[Path]:
    """Wait until no other process measures. A lock that nobody touched for `patience` seconds belongs to nobody."""
    lock = folder / "measuring.lock"
    begun, told = time.monotonic(), False
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > patience:
                    lock.unlink()
                    continue
            if not told and time.monotonic() - begun > _SILENCE:
                told = True
                print(
                    f"polyhal: waiting for another process that measures devices ({lock})", file=sys.stderr, flush=True
                )
            time.sleep(_POLL)
    try:
        yield lock
    finally:
        lock.unlink(missing_ok=True)
