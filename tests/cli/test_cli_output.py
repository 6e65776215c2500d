"""The command line never ends with a traceback: neither for closed pipes and full disks, nor for incomplete installations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polyhal.cli import missing_package

COMMANDS = [["--help"], ["--version"], ["devices", "--cards"], ["explain", "softmax"], []]
"""Their output is written by typer, by rich and by `print`, and the last command raises a usage error after its help."""


def _run(arguments: list[str], before: str = "", **streams: object) -> subprocess.CompletedProcess[str]:
    code = f"import sys\n{before}\nfrom polyhal.cli import main\nsys.argv = ['polyhal', *sys.argv[1:]]\nmain()"
    environment = {**os.environ, "POLYHAL_DEVICE": "numpy", "PYTHONUNBUFFERED": ""}  # buffers that remain at exit
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, text=True, timeout=120, check=False, **streams)  # type: ignore[call-overload, no-any-return]


def _closed_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_closed_pipe_ends_a_command_in_silence(arguments: list[str]) -> None:
    pipe = _closed_pipe()
    done = _run(arguments, stdout=pipe, stderr=subprocess.PIPE)
    os.close(pipe)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_keeps_its_exit_code_if_both_streams_are_closed_pipes() -> None:
    pipe = _closed_pipe()
    assert _run(["devices", "--no-such-option"], stdout=pipe, stderr=pipe).returncode == 2
    os.close(pipe)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full: /dev/full of Linux")
@pytest.mark.parametrize("arguments", [["--version"], ["devices", "--cards"]], ids=" ".join)
def test_a_full_disk_is_one_sentence(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = _run(arguments, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


@pytest.mark.parametrize("missing", ["typer", "demo_of_typer"])
def test_a_missing_package_is_one_sentence(missing: str) -> None:
    # Newer versions of typer import packages of their own while they parse arguments, outside any command.
    before = f"sys.modules[{missing!r}] = None"
    if missing != "typer":
        before += (
            f"\nimport typer.core\ndef refuse(*_):\n    import {missing}\ntyper.core.TyperGroup.parse_args = refuse"
        )
    done = _run(["devices"], before, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == (1 if missing == "typer" else 2)
    sentence = "is not installed; install it, or all required packages with `pip install polyhal`"
    assert done.stderr == f"error: the package {missing} {sentence}\n"


def test_a_missing_optional_package_names_its_extra() -> None:
    sentence = 'the package gguf is not installed; install it with `pip install "polyhal[llm]"`'
    assert missing_package(ModuleNotFoundError("no gguf", name="gguf.constants")) == sentence


def test_another_broken_pipe_is_an_error() -> None:
    before = (
        "import polyhal.cli.app as app\ndef refuse(*_):\n    raise BrokenPipeError(32, 'Broken pipe')\napp.app = refuse"
    )
    done = _run(
        ["devices"], before.replace("refuse(*_)", "refuse(**_)"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert (done.returncode, done.stderr) == (2, "error: Broken pipe\n")
