"""A tiny text, a tiny model, and a fixture that runs the command line inside the test process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from polyhal.cli.app import run

TINY = ["--layers", "2", "--heads", "2", "--width", "16", "--context", "16", "--batch-size", "4", "--sample-every", "0"]
"""A model whose steps take milliseconds on any device."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def polyhal(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run commands in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POLYHAL_DEVICE", raising=False)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        written = capsys.readouterr()
        return Outcome(code, written.out, written.err)

    return call


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of `text`, which is the same in all tests, because a run records it."""
    return tmp_path_factory.mktemp("text") / "rhyme.txt"


@pytest.fixture
def text(text_file: Path) -> Path:
    """Write a text with regularities to learn, a few thousand characters long."""
    return _write(text_file)


def _write(path: Path) -> Path:
    path.write_text("".join(f"{n} green bottles hanging on the wall,\n" for n in range(99, 0, -1)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def finished_run(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run of 12 steps, which no test may change."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    command = ["train", _write(text_file), *TINY, "--steps", 12, "--device", "numpy", "--save-dir", folder]
    assert run([str(a) for a in command]) == 0
    return folder


@pytest.fixture
def trained(finished_run: Path, text: Path, tmp_path: Path) -> Path:
    """Copy the folder of a finished run of 12 steps on `text`."""
    return shutil.copytree(finished_run, tmp_path / "run")
