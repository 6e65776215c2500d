"""File descriptors that processes of one machine send to each other."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from polyhal.hal.collectives.process_group import ProcessGroup
from polyhal.hal.system.communicators import descriptors
from polyhal.hal.system.communicators.descriptors import all_agree, exchange_descriptors, on_one_machine

from .thread_ranks import on_threads

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sockets without a file are Linux's")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def exchanged(group: ProcessGroup, folder: Path) -> list[list[bytes]] | None:
    """Return the contents that every rank reads from the other ranks' files."""
    own = []
    for i in range(2):
        path = folder / f"{group.rank}-{i}"
        path.write_bytes(b"%d of %d" % (i, group.rank))
        own.append(os.open(path, os.O_RDONLY))
    try:
        got = exchange_descriptors(group, own)
        return None if got is None else [[os.pread(d, 100, 0) for d in theirs] for theirs in got]
    finally:
        for descriptor in (*own, *(d for theirs in locals().get("got") or () for d in theirs)):
            os.close(descriptor)


def test_every_process_receives_the_descriptors_of_all_others(tmp_path: Path) -> None:
    before = open_descriptors()
    results = on_threads(3, lambda group: exchanged(group, tmp_path))
    for rank, got in enumerate(results):
        assert got == [[] if r == rank else [b"0 of %d" % r, b"1 of %d" % r] for r in range(3)]
    assert open_descriptors() == before


def test_all_processes_fail_if_one_cannot_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf(socket.socket):
        left = 1

        def listen(self, *args: Any) -> None:
            if Deaf.left:
                Deaf.left -= 1
                raise OSError("no more sockets")
            super().listen(*args)

    monkeypatch.setattr(descriptors.socket, "socket", Deaf)
    before = open_descriptors()
    assert on_threads(3, lambda group: exchanged(group, tmp_path)) == [None] * 3
    assert open_descriptors() == before


def test_all_processes_fail_if_one_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_user_of", lambda connection: -1)
    before = open_descriptors()
    assert on_threads(2, lambda group: exchanged(group, tmp_path)) == [None] * 2
    assert open_descriptors() == before


def test_processes_agree_and_identify_their_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_threads(3, lambda group: all_agree(group, True)) == [True] * 3
    assert on_threads(3, lambda group: all_agree(group, group.rank != 1)) == [False] * 3
    assert on_threads(2, on_one_machine) == [True] * 2
    monkeypatch.setattr(descriptors, "_BOOT", tmp_path / "absent")
    assert on_threads(2, on_one_machine) == [False] * 2
