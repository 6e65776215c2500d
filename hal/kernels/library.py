"""Kernels as files that people may read and change.

A file in the folder of `config.kernels_dir()` takes the place of the shipped file of the same name, as soon as it has passed
the check of `polyhal kernels check` on the device: correct results in the conformance kit. Until then, and where it failed,
the shipped kernel is used and a warning says why. Verdicts are kept per device, driver and version, for the exact text.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.discovery.fingerprint import model, model_key
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.hal.settings import env, json_store

_SCHEMA = 1

Claim = Callable[[str, str], bool]
"""(kernel file, digest of the program): whether this process is to build a program."""


@dataclass(frozen=True, slots=True)
class Built:
    """A program that this process got ready."""

    kernel: str
    """Its file."""
    digest: str
    """Of its text and options."""
    seconds: float
    compiled: bool
    """False where it came from the cache on disk."""


class KernelLibrary(Protocol):
    """The kernels of one opened device."""

    claim: Claim | None
    """Where this is set, launches of programs for which it says no do nothing, and the programs are not built."""
    overrides: Overrides

    @property
    def ready_when_built(self) -> bool:
        """False where the driver finishes compiling at the first launch."""

    @property
    def built(self) -> Sequence[Built]:
        """Every program so far."""

    def names(self) -> Sequence[str]:
        """The files of kernels and of what they include."""

    def shipped(self, name: str) -> str:
        """The text of a file as it came with Polyhal. Raises FileNotFoundError."""

    def forget(self) -> None:
        """Read all files again, those that users changed included; plans that are made keep their programs."""

    def parts(self, name: str) -> frozenset[str]:
        """A file and all that it includes."""

    def statistics(self, name: str) -> Sequence[Mapping[str, Any]]:
        """What the driver tells of the programs of a file that this process has built: registers, memory, group sizes."""


@runtime_checkable
class HasKernels(Protocol):
    """A backend that shows its kernels."""

    kernels: KernelLibrary


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check said about a changed kernel."""

    digest: str
    """Of the text that was checked."""
    problem: str
    """What differs; empty where the kernel passed."""
    ratio: float
    """The time of the shipped kernel over that of the changed one; 0 where that was not measured."""
    date: str


class Overrides:
    """The changed kernels of one device."""

    def __init__(self, info: DeviceInfo) -> None:
        self._info = info
        self.folder = env.kernels_dir()
        self.trial: frozenset[str] = frozenset()
        """Files that are used whatever the verdict; a check sets them."""
        self.shipped_only = False
        """Use none, as for the other side of a comparison."""
        self._verdicts: dict[str, Verdict] | None = None

    def names(self) -> list[str]:
        """The files in the folder that could take a shipped file's place."""
        files = (f for f in self.folder.rglob("*") if f.is_file() and not f.name.startswith("."))
        return sorted(f.relative_to(self.folder).as_posix() for f in files)

    def text(self, name: str) -> str | None:
        """The changed text of a file where it is in force. Warns where there is one that is not."""
        if self.shipped_only:
            return None
        path = self.folder / name
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            self._warn(f"{path} cannot be read: {error}", "the shipped kernel is used")
            return None
        if name in self.trial:
            return text
        problem = self.problem(name, text)
        if problem:
            self._warn(f"{path} is not used: {problem}", f"`polyhal kernels check {name}` checks it")
            return None
        return text

    def problem(self, name: str, text: str) -> str:
        """Why a changed text is not in force; empty where it is."""
        verdict = self.verdicts().get(name)
        if verdict is None:
            return "it has not been checked on this device"
        if verdict.digest != digest(text):
            return "it has changed since it was checked"
        return verdict.problem

    def verdicts(self) -> dict[str, Verdict]:
        """What was said about each file on this device, with its present driver."""
        if self._verdicts is None:
            self._verdicts = _load(self._info)
        return self._verdicts

    def judge(self, name: str, verdict: Verdict) -> None:
        """Keep a verdict. Raises OSError."""
        self._verdicts = {**_load(self._info), name: verdict}
        content = {name: asdict(v) for name, v in self._verdicts.items()}
        json_store.write(_path(self._info), {"schema": _SCHEMA, "device": model(self._info), "verdicts": content})

    def _warn(self, problem: str, fix: str) -> None:
        # Python shows one text once, so that many programs with one header do not repeat it.
        warnings.warn(message(None, problem, fix=fix, device=self._info.name), stacklevel=2)


def digest(text: str) -> str:
    """What a verdict holds for."""
    return hashlib.sha256(text.encode()).hexdigest()


def _path(info: DeviceInfo) -> Path:
    return env.cache_dir() / "kernels" / f"{model_key(info)}.json"


def _load(info: DeviceInfo) -> dict[str, Verdict]:
    try:
        found = json_store.read(_path(info), _SCHEMA)
        return {str(name): Verdict(**v) for name, v in found["verdicts"].items()}
    except (OSError, CorruptFileError, IncompatibleFileError, KeyError, TypeError, AttributeError):
        return {}  # without verdicts, changed kernels wait for a check
