"""A lost rank ends the job within seconds, with one message; the launcher resumes from the last checkpoint."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import pytest

from polyhal.distributed import hub as hubs
from polyhal.distributed import watch as watching
from polyhal.distributed.hub import Hub
from polyhal.distributed.watch import Watch
from polyhal.hal.collectives.process_group import ProcessGroupError
from polyhal.training import RunFolder
from polyhal.training.checkpoint import describe

from .conftest import PROGRAMS, Launch

TINY = ["--layers", "1", "--heads", "2", "--width", "16", "--context", "16", "--batch-size", "5", "--sample-every", "0",
        "--steps", "5000", "--eval-every", "10", "--log-every", "10", "--dropout", "0.1", "--device", "numpy"]  # fmt: skip


@pytest.mark.parametrize(
    ("way", "ranks", "status", "expected"),
    [
        (
            "killed",
            3,
            1,
            r"error: rank 1 \(process \d+ on .*\) was ended by signal 9 \(SIGKILL: .*\); the other 2 ranks",
        ),
        (
            "aborts",
            3,
            1,
            r"error: rank 1 \(process \d+ on .*\) was ended by signal 6 \(SIGABRT: .*\), at File .*failing.py",
        ),
        ("raises", 2, 1, r"error: rank 1 \(process \d+ on .*\) failed: ValueError: the data are bad; the other rank"),
        ("exits", 2, 7, r"error: rank 1 \(process \d+ on .*\) ended with exit status 7"),
        (
            "done",
            3,
            1,
            r"error: rank 1 \(process \d+ on .*\) has ended, and rank [02] waits for it in all_reduce; expected",
        ),
    ],
)
def test_all_ranks_end_when_one_is_gone(launch: Launch, way: str, ranks: int, status: int, expected: str) -> None:
    done = launch("-n", ranks, PROGRAMS / "failing.py", way)
    assert done.returncode == status
    assert len(re.findall(expected, done.stderr)) == 1, done.stderr
    assert len(re.findall("^error:", done.stderr, re.MULTILINE)) == 1
    assert "BAD TERMINATION" not in done.stdout + done.stderr
    assert "APPLICATION" not in done.stdout + done.stderr
    processes = [int(p) for p in re.findall(r"process (\d+)$", done.stdout, re.MULTILINE)]
    assert len(processes) == ranks
    assert not [p for p in processes if os.path.exists(f"/proc/{p}")]
    assert "shared memory is named" not in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="it finds processes in /proc")
def test_a_stopped_rank_is_named_and_ended(launch: Launch) -> None:
    begun = time.monotonic()
    done = launch("-n", 3, PROGRAMS / "failing.py", "stopped", POLYHAL_COLLECTIVE_TIMEOUT="3")
    assert done.returncode == 1
    expected = (
        r"error: rank 1 \(process \d+ on .*\) does not answer: it is stopped or hangs in a call; rank [02] has waited 3"
    )
    assert len(re.findall(expected, done.stderr)) == 1, done.stderr
    assert len(done.stderr.splitlines()) < 4, done.stderr
    processes = [int(p) for p in re.findall(r"process (\d+)$", done.stdout, re.MULTILINE)]
    assert len(processes) == 3
    assert not [p for p in processes if os.path.exists(f"/proc/{p}")]
    assert time.monotonic() - begun < 60


@pytest.mark.skipif(sys.platform != "linux", reason="it finds processes in /proc")
def test_the_launcher_resumes_from_the_last_checkpoint_and_an_interrupt_lets_all_ranks_save(tmp_path: Path) -> None:
    """`test_training` tests that a resumed run is bit-identical."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n} green bottles hanging on the wall,\n" for n in range(99, 0, -1)), encoding="utf-8")
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "polyhal", "launch", "-n", "2", "--restarts", "1", "train", text, *TINY]
    with subprocess.Popen(
        [*command, "--save-dir", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        until_line(job.stdout, "step 20/")  # the checkpoint of step 10 is complete, the one of step 20 may be
        killed = time.monotonic()
        os.kill(rank_process(folder, 1), signal.SIGKILL)
        until_line(job.stderr, "starting again")
        assert time.monotonic() - killed < 10
        before = until_line(job.stdout, "resuming after step")
        until_line(job.stdout, "step 40/")
        job.send_signal(signal.SIGINT)
        rest, errors = job.communicate(timeout=60)
    assert re.search(r"resuming after step [1-9]\d*0$", before), before
    assert job.returncode == 130, errors
    stopped = re.search(r"stopped after step (\d+) of 5000; everything is saved in .*last", rest)
    assert stopped, rest + errors
    assert "resume with: polyhal launch -n 2 train --resume --save-dir" in rest
    assert describe(folder / "last").step == int(stopped[1]) >= 40
    logged = [row.step for row in RunFolder(folder).metrics.rows()]
    assert logged == [*range(10, int(stopped[1]) + 1, 10)]
    assert len(list((folder / "last.ranks").iterdir())) == 2


def until_line(stream: IO[str], text: str) -> str:
    """Read lines until one that contains the text. Returns it."""
    read = []
    for line in stream:
        if text in line:
            return line.rstrip()
        read.append(line)
    raise AssertionError(f"{text!r} does not come after {read}")


def rank_process(folder: Path, rank: int) -> int:
    """Return the process of a rank of the job that trains in the folder."""
    for process in Path("/proc").iterdir():
        try:
            arguments = (process / "cmdline").read_bytes().decode().split("\0")
            environment = (process / "environ").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "python" in arguments[0] and str(folder) in arguments and f"PMI_RANK={rank}" in environment:
            return int(process.name)
    raise AssertionError("no such process")


# --- the hub, in one process ---------------------------------------------------------------------------------------------


def joined(hub: Hub) -> list[Watch]:
    watches = [Watch(hub.address, rank) for rank in range(hub.size)]
    until(lambda: not hub.missing())
    return watches


def until(condition: object) -> None:
    end = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.005)


@pytest.fixture(scope="session", autouse=True)
def _patience() -> None:
    """Keep the tests' process alive when a rank is lost.

    The patch stays: a watch notices the loss of its hub when the hub is collected as garbage, which may be after the tests.
    """
    pytest.MonkeyPatch().setattr(watching, "_exit", lambda: None)


def test_ranks_that_sign_off_wait_for_each_other() -> None:
    hub = Hub(3)
    left = []
    threads = [threading.Thread(target=lambda w=w: left.append(w.leave())) for w in joined(hub)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert left == [True] * 3
    assert hub.loss is None


def test_all_ranks_receive_the_reason_of_the_first_failure() -> None:
    hub = Hub(3)
    watches = joined(hub)
    watches[1].fail("failed: the disk is full", 4)
    until(lambda: all(w.failure for w in watches))
    watches[2].fail("failed: something else")
    with pytest.raises(ProcessGroupError, match=r"\[all_reduce\] rank 1 .* failed: the disk is full"):
        watches[0].check("all_reduce")
    assert hub.loss is not None
    assert (hub.loss.rank, hub.loss.status) == (1, 4)
    assert watches[0].leave() is False


def test_a_connection_that_ends_is_a_lost_rank() -> None:
    hub = Hub(2)
    watches = joined(hub)
    watches[1]._connection.shutdown(2)
    until(lambda: watches[0].failure)
    assert "rank 1" in str(watches[0].failure)
    assert "killed or crashed" in str(watches[0].failure)


def test_waiting_for_a_rank_that_has_ended_is_a_loss() -> None:
    hub = Hub(3)
    watches = joined(hub)
    threading.Thread(target=watches[0].leave, daemon=True).start()
    until(lambda: watches[1]._ended and watches[2]._ended)
    watches[1].waits("gather", 0.1)
    watches[1].waits("gather", 10)
    until(lambda: hub._waiting)
    watches[1].goes_on()  # rank 2 was late
    until(lambda: not hub._waiting)
    watches[2].waits("gather", 10)
    until(lambda: hub._waiting)
    assert hub.loss is None
    watches[1].waits("all_reduce", 10)
    until(lambda: watches[2].failure)
    assert "has ended, and rank 1 waits for it in all_reduce" in str(watches[2].failure)


def test_ranks_that_join_late_receive_earlier_events() -> None:
    hub = Hub(2)
    first = Watch(hub.address, 0)
    until(lambda: hub.missing() == [1])
    first.fail("failed: early")
    until(lambda: hub.loss)
    second = Watch(hub.address, 1)
    until(lambda: second.failure)
    assert "early" in str(second.failure)


def test_strangers_are_not_ranks() -> None:
    hub = Hub(1)
    host, port, _ = hub.address.rsplit(":", 2)
    stranger = Watch(f"{host}:{port}:guessed", 0)
    until(lambda: stranger.failure)
    assert hub.missing() == [0]
    assert hub.loss is None


@pytest.mark.parametrize("rank", [99, -5, True, "0", None, 0.0])
def test_an_invalid_rank_is_refused_even_with_the_token(rank: object) -> None:
    hub = Hub(2)
    stranger = Watch(hub.address, rank)  # type: ignore[arg-type]
    until(lambda: stranger.failure)
    assert hub.missing() == [0, 1]
    assert hub.loss is None


def test_a_second_process_cannot_take_the_number_of_a_rank() -> None:
    hub = Hub(2)
    first, _ = joined(hub)
    second = Watch(hub.address, 0)
    until(lambda: second.failure)
    assert first.failure is None
    assert hub.loss is None


def connect(hub: Hub) -> socket.socket:
    host, port, _ = hub.address.rsplit(":", 2)
    return socket.create_connection((host, int(port)))


def test_silent_connections_are_closed_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "HELLO", 0.2)
    monkeypatch.setattr(hubs, "_STRANGERS", 3)
    hub = Hub(2)
    before = threading.active_count()
    strangers = [connect(hub) for _ in range(30)]
    try:
        time.sleep(0.1)
        assert threading.active_count() - before <= 5
        for stranger in strangers:
            stranger.settimeout(10)
            assert stranger.recv(1) == b""
    finally:
        for stranger in strangers:
            stranger.close()
    until(lambda: threading.active_count() <= before)
    joined(hub)


@pytest.mark.parametrize("line", [b"[" * 60_000 + b"\n", b"9" * 5_000 + b"\n", b"\xff\n", b"{}\n", b'{"token": 3}\n'])
def test_an_invalid_hello_closes_the_connection(line: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    hub = Hub(1)
    before = threading.active_count()
    with connect(hub) as stranger:
        stranger.sendall(line)
        stranger.settimeout(10)
        assert stranger.recv(1) == b""
    until(lambda: threading.active_count() <= before)
    assert capfd.readouterr().err == ""
    assert hub.missing() == [0]


def test_a_rank_that_does_not_answer_is_named_as_the_cause_of_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "ANSWER", 0.3)
    hub = Hub(3)
    watches = joined(hub)
    with hub._lock:
        hub._processes.clear()  # all are this process, which must not be killed
    monkeypatch.setattr(watches[2], "note", lambda **content: None)
    watches[0].timed_out("all_reduce", 8.0)
    until(lambda: watches[1].failure)
    assert re.search(r"rank 2 .* does not answer: .*; rank 0 has waited 8\.0 s in all_reduce", str(watches[1].failure))


def test_the_wait_itself_is_reported_if_all_ranks_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(2)
    watches = joined(hub)
    watches[0].timed_out("all_reduce", 8.0)
    assert "rank 0" in str(watches[0].failure)
    assert "which all answer: rank 0 has waited 8.0 s in all_reduce" in str(watches[0].failure)


def test_a_hub_that_cannot_be_reached_is_named() -> None:
    hub = Hub(1)
    address = hub.address
    hub.close()
    with pytest.raises(ProcessGroupError, match=r"rank 0 on .* cannot reach the launcher at 127\.0\.0\.1"):
        Watch(address, 0)
