"""The folder of a run: two checkpoints, the metrics and a plot of the losses."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from polyhal.hal.errors import PolyhalError, message
from polyhal.training.metrics import Metrics
from polyhal.utils.files import FileLock, remove_folder

BEST, LAST = "best", "last"
_METRICS, _PICTURE = "metrics.jsonl", "loss.png"


class RunFolderError(PolyhalError):
    """A folder contains a run that would be lost, or lacks the requested run."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of a run: two checkpoints, metrics and a plot; and the lock of the process that trains there."""

    path: Path

    @property
    def best(self) -> Path:
        """Path of the checkpoint with the lowest validation loss."""
        return self.path / BEST

    @property
    def last(self) -> Path:
        """Path of the latest checkpoint."""
        return self.path / LAST

    @property
    def lock(self) -> FileLock:
        """Lock of the process that trains in the folder."""
        return FileLock(self.path / ".training.lock")

    @property
    def picture(self) -> Path:
        """Path of the plot of the losses."""
        return self.path / _PICTURE

    @property
    def metrics(self) -> Metrics:
        """Table of losses and speeds."""
        return Metrics(self.path / _METRICS)

    def parts(self) -> list[Path]:
        """Return the existing files of a run."""
        rank_files = self.path / f"{LAST}.ranks"
        return [p for p in (self.best, self.last, rank_files, self.path / _METRICS, self.picture) if p.exists()]

    def check(self, *, overwrite: bool) -> None:
        """Raise RunFolderError if a new run would destroy one that may not be overwritten. Changes nothing."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(
                message(None, f"--save-dir {self.path} is a file", expected="a folder, or a name that does not exist")
            )
        if self.parts() and not overwrite:
            raise RunFolderError(
                message(
                    None,
                    f"{self.path} already contains a run",
                    fix="use --resume to continue it, --overwrite to replace it, or another --save-dir",
                )
            )

    def in_use(self) -> bool:
        """Return whether a process trains in the folder, even if it has not saved anything yet."""
        lock = self.lock
        if not lock.path.exists():
            return False
        acquired = lock.acquire()
        lock.release()
        return not acquired

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Create the folder and lock it for a block. Folders that were created are removed if they remain empty.

        Raises RunFolderError, with the process, if another one trains there, and if the folder cannot be created. The lock of
        a killed process is taken over.
        """
        lock = self.lock
        with writing(self.path):
            missing = [p for p in (self.path, *self.path.parents) if not p.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            acquired = lock.acquire()
        if not acquired:
            problem = f"{lock.holder()} trains in {self.path}"
            raise RunFolderError(message(None, problem, fix="wait until it ends, or use another --save-dir"))
        try:
            yield
        finally:
            lock.release()
            with suppress(OSError):  # the folders are not empty: they contain a run
                for path in missing:
                    path.rmdir()

    def claim(self, *, overwrite: bool) -> None:
        """Remove an earlier run from a reserved folder. Raises RunFolderError as `check` does, and OSError."""
        self.check(overwrite=overwrite)
        for path in self.parts():
            remove_folder(path) if path.is_dir() else path.unlink()
        self.path.mkdir(parents=True, exist_ok=True)

    def require_last(self) -> None:
        """Raise RunFolderError unless there is a checkpoint to resume from."""
        if not self.last.exists():
            raise RunFolderError(
                message(
                    None,
                    f"{self.path} contains no run to resume",
                    expected=f"a checkpoint {self.last}",
                    fix="check --save-dir, or start without --resume",
                )
            )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert failures to write `path` (a full disk, a missing permission) to a RunFolderError with the remedy."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = "free disk space" if is_full else "use a --save-dir that can be written"
        if (path / LAST).exists() or (path.parent / LAST).exists():
            remedy = "free disk space" if is_full else "make it writable"
            fix = f"earlier checkpoints are intact; {remedy} and continue with --resume"
        raise RunFolderError(message(None, f"{path} cannot be written: {error.strerror or error}", fix=fix)) from error


def fresh(parent: Path, name: str) -> RunFolder:
    """Return the first of `name`, `name-2`, `name-3` ... under `parent` without a run."""
    return next(f for f in _numbered(parent, name) if not f.parts() and not f.in_use())


def latest(parent: Path, name: str) -> RunFolder:
    """Return the latest run of `fresh`; `name` itself if there is none."""
    existing = list(itertools.takewhile(lambda f: f.parts(), _numbered(parent, name)))
    return existing[-1] if existing else RunFolder(parent / name)


def _numbered(parent: Path, name: str) -> Iterator[RunFolder]:
    yield RunFolder(parent / name)
    for number in itertools.count(2):
        yield RunFolder(parent / f"{name}-{number}")
