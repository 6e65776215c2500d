"""Locks and files shared by processes: held by one at a time, released by the system, replaced atomically."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from interrupts import interrupted_at

import polyhal as ph
from polyhal.hal.core.settings import atomic, file_lock, json_store, processes
from polyhal.hal.core.settings.file_lock import FileLock, exclusive
from polyhal.hal.errors import CorruptFileError


def test_one_holder_at_a_time_and_its_release_removes_the_file(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.acquire()
    assert not second.acquire()
    assert second.holder() == f"process {processes.mark().rpartition('-')[2]} on {processes.HOST}"
    second.release()
    assert not second.acquire()
    first.release()
    assert list(tmp_path.iterdir()) == []
    assert second.acquire()


def test_a_lock_removed_by_others_does_not_block_a_new_one(tmp_path: Path) -> None:
    hung, next_one = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert hung.acquire()
    hung.path.unlink()
    assert next_one.acquire()
    hung.release()
    assert next_one.path.exists()
    assert not hung.acquire()


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"x" * 10_000, b"host-" + b"9" * 100, b"host-\xc2\xb2", b"a-b"])
def test_the_system_decides_regardless_of_the_files_content(tmp_path: Path, text: bytes) -> None:
    lock = FileLock(tmp_path / "lock")
    lock.path.write_bytes(text)
    assert "process" in lock.holder()
    assert lock.acquire()


def test_without_locks_of_the_file_system_the_named_process_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(file_lock, "_lock", unsupported)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    lock = FileLock(tmp_path / "lock")
    lock.path.write_text(f"{processes.HOST}-{ended.pid}")
    assert lock.acquire()
    assert not FileLock(tmp_path / "lock").acquire()
    lock.release()
    lock.path.write_text("elsewhere-1")
    assert not lock.acquire()


def test_waiting_ends_with_the_holder_or_with_patience(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert lock.acquire()
    with pytest.raises(TimeoutError, match=r"process .* holds"), exclusive(lock.path, 0.01):
        pass
    threading.Timer(0.1, lock.release).start()
    start = time.monotonic()
    with exclusive(lock.path, 20):
        assert time.monotonic() - start < 10


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken by another holder at first"])
def test_an_interrupt_at_any_line_leaves_the_lock_free_for_this_process(tmp_path: Path, taken: bool) -> None:
    path, kept = tmp_path / "lock", []
    for line in itertools.count(1):
        other = FileLock(path)
        if taken:
            other.acquire()

        def use(other: FileLock = other) -> None:
            with exclusive(path, 0.0 if taken else 10.0):
                pass

        try:
            error = interrupted_at(line, use, file_lock.__file__)
        except TimeoutError:
            error = None
        other.release()
        with exclusive(path, 0.0):
            assert FileLock(path).acquire() is False
        assert not path.exists()
        if error is None:
            break
        kept.append(error)
    assert len(kept) > 15


def test_an_interrupt_at_any_line_of_the_lock_leaves_saving_possible(tmp_path: Path) -> None:
    ph.save({"x": 0}, tmp_path / "state")
    kept = []
    for line in itertools.count(1):
        error = interrupted_at(line, lambda line=line: ph.save({"x": line}, tmp_path / "state"), file_lock.__file__)
        assert ph.load(tmp_path / "state")["x"] in (line, line - 1)
        ph.save({"x": line}, tmp_path / "state")
        assert ph.load(tmp_path / "state")["x"] == line
        if error is None:
            break
        kept.append(error)
    assert len(kept) > 15
    assert {p.suffix for p in (tmp_path / "state").iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_lock_must_be_a_regular_file_and_the_target_of_a_link_is_kept(tmp_path: Path, kind: str) -> None:
    path, target = tmp_path / "lock", tmp_path / "target"
    target.write_text("mine")
    if kind == "link":
        path.symlink_to(target)
    elif kind == "folder":
        path.mkdir()
    elif hasattr(os, "mkfifo"):
        os.mkfifo(path)
    else:
        pytest.skip("this system has no FIFOs")
    with pytest.raises(OSError, match="lock"):
        FileLock(path).acquire()
    assert target.read_text() == "mine"


@pytest.mark.parametrize("number", ["99999999999999999999999", "²", "-1", "0" * 150])
def test_names_of_absurd_processes_are_harmless(tmp_path: Path, number: str) -> None:
    (tmp_path / f".x.{processes.HOST}-{number}.01234567.tmp").touch()
    json_store.write(tmp_path / "x.json", {"schema": 1})
    assert json_store.read(tmp_path / "x.json", 1) == {"schema": 1}


def test_a_new_folder_is_complete_or_absent(tmp_path: Path) -> None:
    with atomic.new_folder(tmp_path / "new") as folder:
        (folder / "a").touch()
        assert not (tmp_path / "new").exists()
    assert [p.name for p in tmp_path.rglob("*")] == ["new", "a"]
    with pytest.raises(FileNotFoundError), atomic.new_folder(tmp_path / "other") as folder:
        (folder / "nowhere" / "a").touch()
    assert [p.name for p in tmp_path.iterdir()] == ["new"]


def test_folders_of_killed_processes_are_swept(tmp_path: Path) -> None:
    kill = "import os, pathlib, sys; from polyhal.hal.core.settings.atomic import new_folder\n"
    kill += "with new_folder(pathlib.Path(sys.argv[1])) as f: (f / 'a').touch(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", kill, str(tmp_path / "new")], check=False)
    assert len(list(tmp_path.glob(".new.*.tmp/a"))) == 1
    atomic.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, "9" * 5_000, "\udcff"], ids=len)
def test_json_that_python_cannot_parse_is_a_damaged_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CorruptFileError, match=r"x\.json is not valid JSON"):
        json_store.read(path, 1)
