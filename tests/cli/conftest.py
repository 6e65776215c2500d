"""A tiny text, a tiny model, and a fixture that runs the command line inside the test process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from polyhal.cli.app import run

TINY = ["--layers", "2", "--heads", "2", "--width", "16", "--context", "16", "--batch-size", "4", "--sample-every", "0"]
"""A model whose steps take milliseconds on any device."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exit code and the output of a command."""

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


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text with something to learn, a few thousand characters long."""
    path = tmp_path / "rhyme.txt"
    path.write_text("".join(f"{n} green bottles hanging on the wall,\n" for n in range(99, 0, -1)), encoding="utf-8")
    return path


@pytest.fixture
def trained(polyhal: Command, text: Path, tmp_path: Path) -> Path:
    """The folder of a finished run of 12 steps."""
    outcome = polyhal("train", text, *TINY, "--steps", 12, "--device", "numpy", "--save-dir", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    return tmp_path / "run"
