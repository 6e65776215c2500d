"""Two runs never share a folder: the second is refused, and the lock of a killed process is taken over."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from polyhal.training import RunFolder

from .conftest import TINY, Command

_TRAIN_FOREVER = """
import os, sys, time
from pathlib import Path
from polyhal.training import RunFolder
with RunFolder(Path(sys.argv[1])).reserved():
    print("ready", flush=True)
    time.sleep(600)
"""


def _holder(folder: Path) -> subprocess.Popen[str]:
    """Start another process that reserves the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", _TRAIN_FOREVER, str(folder)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="signals to other processes are a POSIX matter")
def test_a_folder_in_use_is_refused_until_its_process_is_killed(polyhal: Command, trained: Path) -> None:
    other = _holder(trained)
    host = "".join(c if c.isalnum() else "_" for c in platform.node())
    for options in (["--resume", "--steps", 14], ["--overwrite", "--steps", 1]):
        refused = polyhal("train", *([] if "--resume" in options else TINY), *options, "--save-dir", trained)
        assert refused.code == 2
        assert f"process {other.pid} on {host} trains in {trained}; wait until it ends" in refused.err
        assert len(refused.err.splitlines()) == 1
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert (trained / ".training.lock").exists()
    resumed = polyhal("train", "--resume", "--steps", 14, "--save-dir", trained, "--device", "numpy")
    assert resumed.code == 0, resumed.err
    assert not (trained / ".training.lock").exists()


def test_a_folder_that_is_being_prepared_is_not_free(tmp_path: Path) -> None:
    from polyhal.training.folder import fresh

    with RunFolder(tmp_path / "text").reserved():
        assert fresh(tmp_path, "text").path == tmp_path / "text-2"
    assert fresh(tmp_path, "text").path == tmp_path / "text"


def test_a_reserved_folder_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "a" / "b").reserved():
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
