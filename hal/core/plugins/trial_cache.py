"""Outcomes of trials, in files shared by processes: a plug-in is tried once per version, not in every process.

A plug-in that passed is tried again when packages are installed in its folder. A failed one is also tried again after a day,
after a change of the variables that affect it, and by `polyhal doctor`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from polyhal.hal.core.plugins import entry_points, trial
from polyhal.hal.core.plugins.trial import Subject, TrialOutcome, TrialUnavailableError
from polyhal.hal.core.settings import env, json_store
from polyhal.hal.errors import PolyhalError

_RETRY = timedelta(days=1)
"""Lifetime of a failed trial: drivers may be repaired without a change of the package."""
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point, or one of its backends, and the prefixes of the variables that affect it."""

    point: EntryPoint
    backend: str = ""
    environment: tuple[str, ...] = ()

    def key(self) -> dict[str, str]:
        """Return the factors of a trial that are known without loading the plug-in."""
        origin = entry_points.origin(self.point)
        folder = "" if self.point.dist is None else str(self.point.dist.locate_file(""))
        return {
            "point": origin.point,
            "backend": self.backend,
            "package": str(origin),
            "python": f"{sys.executable} {sys.version}",
            "folder": folder,
            "installed": _modified(folder),  # its requirements are usually in the same folder
        }

    def state(self) -> str:
        """Return a digest of the variables that affect the plug-in."""
        names = ("POLYHAL_PROBE_TIMEOUT", *self.environment)
        return _digest({k: v for k, v in os.environ.items() if k.startswith(names)})


class TrialCache:
    """Known outcomes, and trials of plug-ins without an outcome."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, str, str], TrialOutcome] = {}

    def outcomes(self, wanted: Sequence[Plugin]) -> list[TrialOutcome]:
        """Return the outcome for each plug-in; all pass if POLYHAL_TRIALS is 0 or no process can be started."""
        if not env.trials():
            return [TrialOutcome() for _ in wanted]
        for plugin in wanted:
            if _name(plugin) not in self._outcomes and (found := _load(plugin)) is not None:
                self._outcomes[_name(plugin)] = found
        missing = [p for p in wanted if _name(p) not in self._outcomes]
        if missing:
            try:
                found_all = trial.run([Subject(p.point.name, p.point.value, p.backend) for p in missing])
            except TrialUnavailableError:  # they count as passed
                found_all = [TrialOutcome() for _ in missing]
            else:
                for plugin, found in zip(missing, found_all, strict=True):
                    _store(plugin, found)
            self._outcomes.update(zip(map(_name, missing), found_all, strict=True))
        return [self._outcomes[_name(p)] for p in wanted]


def forget_failures() -> None:
    """Delete the outcomes of failed trials, so that the next registry tries the plug-ins again."""
    for path in _folder().glob("*.json"):
        with contextlib.suppress(OSError, PolyhalError, KeyError):
            content = json_store.read(path, _SCHEMA)
            if content["problem"] or content["devices"]:
                path.unlink()


def can_store() -> bool:
    """Return whether outcomes can be stored. If not, only plug-ins of other packages are tried, in every process."""
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _failed(outcome: TrialOutcome) -> bool:
    return bool(outcome.problem or outcome.devices)


def _name(plugin: Plugin) -> tuple[str, str, str]:
    return plugin.point.name, plugin.point.value, plugin.backend


def _folder() -> Path:
    return env.cache_dir() / "trials"


def _path(key: dict[str, str]) -> Path:
    return _folder() / f"{_digest(key)}.json"


def _load(plugin: Plugin) -> TrialOutcome | None:
    """Return the outcome in a file, or None if there is no usable one."""
    key = plugin.key()
    try:
        content = json_store.read(_path(key), _SCHEMA)
        devices: Any = content["devices"]
        found = TrialOutcome(content["problem"], content["fix"], devices)
        texts = [found.problem, found.fix, *devices.keys(), *devices.values()]
        age = datetime.now(UTC) - datetime.fromisoformat(content["date"])
        if content["key"] != key or not all(isinstance(t, str) for t in texts):
            return None
        if _failed(found) and (age > _RETRY or content["state"] != plugin.state()):
            return None
    except (OSError, PolyhalError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return found


def _store(plugin: Plugin, outcome: TrialOutcome) -> None:
    key = plugin.key()
    value = {
        "schema": _SCHEMA,
        "key": key,
        "state": plugin.state(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "problem": outcome.problem,
        "fix": outcome.fix,
        "devices": outcome.devices,
    }
    try:
        json_store.write(_path(key), value)
    except OSError:  # a full or read-only disk: the trial is repeated by the next process
        return


def _digest(value: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode(errors="surrogateescape")).hexdigest()[:24]


def _modified(folder: str) -> str:
    """Return the time of the last installation into or removal from a folder of packages."""
    try:
        return str(os.stat(folder).st_mtime_ns) if folder else ""
    except OSError:
        return ""
