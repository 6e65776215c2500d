"""Ctrl-C and SIGTERM: the run is saved, prints the command that resumes it, and resumes exactly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polyhal.cli.stop_request import StopRequest

from .conftest import TINY, Command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals to other processes are a POSIX matter")


def _start(text: Path, folder: Path, *options: object) -> subprocess.Popen[str]:
    arguments = ["train", text, *TINY, "--steps", 100000, "--device", "numpy", "--save-dir", folder, *options]
    environment = os.environ | {"POLYHAL_DISABLE": "opencl", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "polyhal", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _wait_for_steps(folder: Path) -> None:
    """Wait until the first figures are written."""
    deadline = time.monotonic() + 30
    while not (folder / "metrics.jsonl").exists():
        assert time.monotonic() < deadline, "the run did not start"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_resume(
    polyhal: Command, text: Path, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "run"
    process = _start(text, folder)
    _wait_for_steps(folder)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert f"resume with: polyhal train --resume --save-dir {folder} --device numpy" in out
    assert "Traceback" not in out + err
    step = int(out.split("stopped after step ")[1].split()[0])
    again = polyhal("train", "--resume", "--save-dir", folder, "--device", "numpy", "--stop-after", 1)
    assert again.code == 0, again.err
    assert f"resuming after step {step}" in again.out


def test_a_second_signal_quits_at_once() -> None:
    with StopRequest() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert stop.requested == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_before_training_is_one_line(
    polyhal: Command, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(path: Path) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "read_bytes", interrupt)
    outcome = polyhal("train", text)
    assert outcome.code == 130
    assert outcome.err == "error: interrupted\n"


_BAR = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # a session of its own, whose terminal is standard input
from polyhal.cli.progress_bar import ProgressBar
echo = lambda: bool(termios.tcgetattr(0)[3] & termios.ECHO)
try:
    with ProgressBar():
        shown = echo()
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print("during", shown, "after", echo())
"""


def test_a_terminal_shows_no_keys_in_a_progress_bar_and_shows_them_afterwards() -> None:
    import pty

    master, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _BAR], stdin=terminal, capture_output=True, text=True, start_new_session=True
        )
    finally:
        os.close(master)
        os.close(terminal)
    assert done.stdout.split() == ["during", "False", "after", "True"], done.stderr
