"""The kernel library: kernels as files that users may read and change.

A file in the folder `env.kernels_dir()` overrides the shipped file of the same name as soon as it has passed `polyhal
kernels check` on the device, which tests it with the conformance kit. Until then, and if it failed, the shipped kernel
is used, with a warning. Verdicts are stored per device, driver and version, for the exact text.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.fingerprint import model, model_key
from polyhal.hal.core.settings import env, json_store
from polyhal.hal.core.settings.trust import read_regular
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message

if TYPE_CHECKING:
    from polyhal.hal.core.kernels.background_build import BackgroundBuilder

_SCHEMA = 1

BuildFilter = Callable[[str, str], bool]
"""Function (kernel file, digest of the program) that returns whether this process builds the program."""


@dataclass(frozen=True, slots=True)
class ProgramBuild:
    """A program that this process has obtained."""

    kernel: str
    """Kernel file."""
    digest: str
    """Digest of text and compiler options."""
    seconds: float
    compiled: bool
    """True if it was compiled, not loaded from the disk cache."""


class KernelLibrary(Protocol):
    """The kernels of one opened device."""

    build_filter: BuildFilter | None
    """If set, programs that it rejects are not built, and their launches are no-ops."""
    overrides: KernelOverrides

    @property
    def ready_when_built(self) -> bool:
        """True if compilation is complete after the build, not only at the first launch."""

    @property
    def program_builds(self) -> Sequence[ProgramBuild]:
        """All programs that this process has obtained so far."""

    def names(self) -> Sequence[str]:
        """Return the paths of kernel files and of the files that they include."""

    def shipped(self, name: str) -> str:
        """Return the original text of a file. Raises FileNotFoundError."""

    def reload(self) -> None:
        """Read all files again, including files changed by the user. Existing plans keep their programs."""

    def parts(self, name: str) -> frozenset[str]:
        """Return a file and all files that it includes."""

    def statistics(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the driver's statistics of a file's programs built by this process, such as registers."""


@runtime_checkable
class RunsGroups(Protocol):
    """A backend with CPU kernels, of one work-item per group, that can also run its GPU kernels on CPUs."""

    def in_groups(self) -> AbstractContextManager[None]:
        """Lower ops inside the block as on a GPU, with several work-items per group."""


@runtime_checkable
class HasKernels(Protocol):
    """A backend whose kernels are files."""

    kernels: KernelLibrary


@runtime_checkable
class BuildsAhead(Protocol):
    """A kernel library whose programs other processes build ahead."""

    background: BackgroundBuilder | None
    """The processes that build; None if they are switched off."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the check of a changed kernel."""

    digest: str
    """Digest of the checked text."""
    problem: str
    """Problem of the kernel; empty if it passed."""
    ratio: float
    """Time of the shipped kernel divided by the time of the changed one; 0 if not measured."""
    date: str

    @classmethod
    def from_json(cls, value: Any) -> Verdict:
        """Return the verdict that `dataclasses.asdict` wrote. Raises ValueError for anything else."""
        names = {f.name for f in fields(cls)}
        if not isinstance(value, dict) or set(value) != names or type(value["ratio"]) not in (int, float):
            raise ValueError(f"{value!r} is not a verdict")
        if not all(isinstance(value[name], str) for name in names - {"ratio"}):
            raise ValueError(f"{value!r} is not a verdict")
        return cls(**value)


class KernelOverrides:
    """The changed kernels of one device."""

    def __init__(self, info: DeviceInfo) -> None:
        self._info = info
        self.folder = env.kernels_dir()
        self.under_test: frozenset[str] = frozenset()
        """Files being checked, used regardless of their verdict."""
        self.shipped_only = False
        """True if to ignore all changed files, for a comparison."""
        self._verdicts: dict[str, Verdict] | None = None

    def names(self) -> list[str]:
        """Return the paths of all files in the folder."""
        files = (f for f in self.folder.rglob("*") if f.is_file() and not f.name.startswith("."))
        return sorted(f.relative_to(self.folder).as_posix() for f in files)

    def text(self, name: str) -> str | None:
        """Return the changed text of a file if it is in use. Warns if a changed text is not used."""
        if self.shipped_only:
            return None
        path = self.folder / name
        try:
            text = read_regular(path).decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            self._warn(f"{path} cannot be read: {error}", "the shipped kernel is used")
            return None
        if name in self.under_test:
            return text
        problem = self.problem(name, text)
        if problem:
            self._warn(f"{path} is not used: {problem}", f"`polyhal kernels check {name}` checks it")
            return None
        return text

    def problem(self, name: str, text: str) -> str:
        """Return the reason why a changed text is not used; empty if it is."""
        verdict = self.verdicts().get(name)
        if verdict is None:
            return "it has not been checked on this device"
        if verdict.digest != digest(text):
            return "it has changed since it was checked"
        return verdict.problem

    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdicts by file, for this device with its current driver."""
        if self._verdicts is None:
            self._verdicts = _load(self._info)
        return self._verdicts

    def store(self, name: str, verdict: Verdict) -> None:
        """Store the verdict on a file. Raises OSError."""
        path = _path(self._info)
        with json_store.changing(path):
            self._verdicts = {**_load(self._info), name: verdict}
            content = {name: asdict(v) for name, v in self._verdicts.items()}
            json_store.write(path, {"schema": _SCHEMA, "device": model(self._info), "verdicts": content})

    def _warn(self, problem: str, fix: str) -> None:
        # Python shows equal warnings once, so many programs with one header do not repeat it.
        warnings.warn(message(None, problem, fix=fix, device=self._info.name), stacklevel=2)


def digest(text: str) -> str:
    """Return the digest of a text, as stored in a verdict."""
    return hashlib.sha256(text.encode()).hexdigest()


def _path(info: DeviceInfo) -> Path:
    return env.cache_dir() / "kernels" / f"{model_key(info)}.json"


def _load(info: DeviceInfo) -> dict[str, Verdict]:
    try:
        content = json_store.read(_path(info), _SCHEMA)
        return {str(name): Verdict.from_json(v) for name, v in content["verdicts"].items()}
    except (OSError, CorruptFileError, IncompatibleFileError, KeyError, ValueError, AttributeError):
        return {}  # without verdicts, changed kernels are not used
