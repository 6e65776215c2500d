"""Kills at random moments: completely written data exists, partially written data does not, and the next start works.

Processes that write checkpoints, caches and runs end by SIGKILL. They are forked from a process that has imported everything,
before it opens any device, so that a kill costs milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import polyhal as ph
from benchmarks.reliability import victims
from benchmarks.reliability.fuzzing.case import digest_of
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.hal.core.kernels import tuning
from polyhal.hal.core.kernels.call_log import KernelCall, KernelCallLog
from polyhal.hal.system.discovery.benchmark_cache import BenchmarkCache
from polyhal.training import RunFolder
from polyhal.training.checkpoint import describe

_START = 120.0
"""Seconds that a process may take to begin, on a busy machine."""
_END = 600.0
"""Seconds that a training run of a second may take."""
_SEARCH = 20.0
"""Seconds within which a search is killed, with the start of Python."""
_WRITES = 6
_FIRST = 0.1
"""A kill comes after fewer than `_WRITES` writes and a part of the time of one; `_FIRST` seconds for the first."""
_PROMPT = 10.0
"""Seconds within which the next start must end: no process may wait for a killed one."""

Victim = Callable[[Connection, str, int], None]


@dataclass(frozen=True, slots=True)
class KillsResult:
    """Counts of a campaign."""

    kills: int
    by_target: dict[str, int]
    moments: dict[str, int]
    """How many kills came before the first write was finished, and how many later."""
    lost: int
    """Times that completely written data was lost or changed, or a run ended with other weights."""
    resumed: int
    """Training runs that were killed, continued, and ended with the weights of the run without a kill."""
    findings: tuple[str, ...]
    """Data that was lost or wrong, and starts that failed."""


@dataclass(slots=True)
class _Campaign:
    random: Random
    by_target: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    resumed: int = 0
    findings: list[str] = field(default_factory=list)

    def expect(self, holds: bool, problem: str) -> None:
        if not holds:
            self.findings.append(problem)

    def expect_kept(self, holds: bool, problem: str) -> None:
        """Count a lost state, and expect that it is kept."""
        self.lost += not holds
        self.expect(holds, problem)

    def kill(self, target: str, victim: Victim, path: Path, seed: int) -> int | None:
        """Run a victim and kill it within or after some writes. Returns the last number that it finished, None for none."""
        receive, process = _started(victim, path, seed)
        if not receive.poll(_START):
            raise RuntimeError(f"{target} did not start")
        numbers = [receive.recv()]
        begin, writes = time.monotonic(), self.random.randrange(_WRITES)
        for _ in range(writes):  # counted, so that a busy machine does not move all kills to the beginning
            numbers += _received(receive, _START)
        passed = time.monotonic() - begin
        time.sleep(self.random.random() * (passed / writes if writes else _FIRST))
        ended = not process.is_alive()
        if not ended:
            os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        while more := _received(receive, 0):
            numbers += more
        receive.close()
        self.expect(process.exitcode in (0, -signal.SIGKILL), f"{target} {seed} failed with {process.exitcode}")
        if not ended:
            self.by_target[target] += 1
            self.moments["before the first write" if len(numbers) == 1 else "later"] += 1
        return numbers[-1]


def _started(victim: Victim, path: Path, seed: int) -> tuple[Connection, Any]:
    """Return a victim, and the end of the pipe from which its reports come."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.reliability.victims"])
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=victim, args=(send, str(path), seed))
    process.start()
    send.close()
    return receive, process


def _received(receive: Connection, seconds: float) -> list[int | None]:
    """Return the next report; empty if there is none within so many seconds, or ever."""
    try:
        return [receive.recv()] if receive.poll(seconds) else []
    except EOFError:
        return []


def kills(writes: int, trainings: int, searches: int = 0, seed: int = 0, device: str = "opencl") -> KillsResult:
    """Kill each kind of writer `writes` times, training `trainings` times, and `polyhal tune` on `device` `searches` times.

    Equal seeds result in equal delays.
    """
    campaign = _Campaign(Random(seed))
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, POLYHAL_CACHE_DIR=str(Path(folder) / "cache"), POLYHAL_MEASURE_TIMEOUT="30"),
    ):
        for number in range(writes):
            for target, check in _TARGETS.items():
                check(campaign, target, Path(folder) / target, number * 1_000_000)
        if trainings:
            _training(campaign, Path(folder) / "runs", trainings)
        for _ in range(searches):
            _search(campaign, device)
    total = sum(campaign.by_target.values())
    return KillsResult(
        total,
        dict(campaign.by_target),
        dict(campaign.moments),
        campaign.lost,
        campaign.resumed,
        tuple(campaign.findings),
    )


def _unfinished(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob(".*") if p.suffix in (".tmp", ".lock")]


# --- victims --------------------------------------------------------------------------------------------------------


def _checkpoint(suffix: str) -> Callable[[_Campaign, str, Path, int], None]:
    def check(campaign: _Campaign, target: str, folder: Path, seed: int) -> None:
        path = folder / f"state{suffix}"
        before = _number(path)
        last = campaign.kill(target, victims.save_checkpoints, path, seed)
        allowed = {before if last is None else last, seed if last is None else last + 1}
        number = _number(path)
        campaign.expect_kept(number in allowed, f"{target}: state {number} of {allowed}")
        if number is not None:
            same = digest_of(ph.load(path, "numpy")) == digest_of(victims.state(number))
            campaign.expect_kept(same, f"{target}: state {number} is not what was written")
        ph.save(victims.state(seed + 999_999), path)
        campaign.expect(_number(path) == seed + 999_999, f"{target}: it cannot be replaced")
        campaign.expect(not _unfinished(folder), f"{target}: {_unfinished(folder)} are left")

    return check


def _number(path: Path) -> int | None:
    """Return the number of the state on disk."""
    return int(ph.load(path, "numpy", lazy=True)["number"]) if path.exists() else None


def _programs(campaign: _Campaign, target: str, folder: Path, seed: int) -> None:
    last = campaign.kill(target, victims.store_programs, folder, seed)
    cache = DiskCache(folder, limit=400_000)
    cache.store(DiskCache.key(["next"]), b"next")
    campaign.expect(cache.load(DiskCache.key(["next"])) == b"next", f"{target}: nothing can be stored")
    for number in range(seed, seed + 1 if last is None else last + 2):
        found = cache.load(DiskCache.key([str(number)]))
        campaign.expect_kept(found in (None, victims.payload(number)), f"{target}: program {number} is another one")
        lost = found is None and last is not None and number == last
        campaign.expect_kept(not lost, f"{target}: program {number} is lost")
    campaign.expect(not _unfinished(folder), f"{target}: {_unfinished(folder)} are left")


def _tuning(campaign: _Campaign, target: str, folder: Path, seed: int) -> None:
    before = tuning.load(victims.INFO).keys()
    last = campaign.kill(target, victims.add_choices, Path(os.environ["POLYHAL_CACHE_DIR"]), seed)
    found = tuning.load(victims.INFO)
    added = [victims.choice(n).key for n in range(seed, seed if last is None else last + 1)]
    possible = {*before, *added, victims.choice(seed if last is None else last + 1).key}
    campaign.expect_kept({*before, *added} <= found.keys() <= possible, f"{target}: choices are lost")
    start = time.monotonic()
    mine = victims.choice(seed + 999_999)
    tuning.add(victims.INFO, {mine.key: mine})
    campaign.expect(mine.key in tuning.load(victims.INFO), f"{target}: nothing can be added")
    campaign.expect(time.monotonic() - start < _PROMPT, f"{target}: the next start waits")


def _benchmark(campaign: _Campaign, target: str, folder: Path, seed: int) -> None:
    campaign.kill(target, victims.benchmark, Path(os.environ["POLYHAL_CACHE_DIR"]), seed)
    start = time.monotonic()
    cache = BenchmarkCache(victims.times)
    for candidate in victims.candidates():
        found = cache.lookup(candidate)
        campaign.expect(found is None or found.seconds == 0.5, f"{target}: {found}")
    cache.ensure(victims.candidates())
    known = all(cache.lookup(c) is not None for c in victims.candidates())
    campaign.expect(known and not cache.skipped, f"{target}: nothing is known after {cache.skipped}")
    campaign.expect(time.monotonic() - start < _PROMPT, f"{target}: the next start waits")


def _calls(campaign: _Campaign, target: str, folder: Path, seed: int) -> None:
    log = KernelCallLog(victims.INFO)
    before = len(log.calls())
    last = campaign.kill(target, victims.log_calls, Path(os.environ["POLYHAL_CACHE_DIR"]), seed)
    finished = 0 if last is None else last + 1 - seed
    full = log._path.exists() and log._path.stat().st_size > 3 << 20  # nothing is added to a log of 4 MiB
    campaign.expect_kept(full or len(log.calls()) - before in (finished, finished + 1), f"{target}: calls are lost")
    log.add(KernelCall(f"mine {seed}", (), (), {}), [f"mine {seed}"])
    ops = [c.op for c in KernelCallLog(victims.INFO).calls()]
    campaign.expect(full or f"mine {seed}" in ops, f"{target}: nothing can be added")
    if full:
        log._path.unlink()


_TARGETS: dict[str, Callable[[_Campaign, str, Path, int], None]] = {
    "checkpoint file": _checkpoint(".safetensors"),
    "checkpoint folder": _checkpoint(""),
    "program cache": _programs,
    "tuning database": _tuning,
    "benchmark cache": _benchmark,
    "kernel-call log": _calls,
}


# --- training -------------------------------------------------------------------------------------------------------


def _training(campaign: _Campaign, folder: Path, number: int) -> None:
    """Kill runs several times each, let them continue, and compare their final weights."""
    expected = _end(folder / "without")
    run = 0
    while campaign.by_target["training"] < number:
        path, run, killed = folder / f"run {run}", run + 1, campaign.by_target["training"]
        for _ in range(min(4, number - campaign.by_target["training"])):
            last = campaign.kill("training", victims.train, path, 0)
            kept = RunFolder(path)
            gone = last is not None and not kept.last.exists()
            campaign.expect_kept(not gone, f"training: the checkpoint of step {last} is lost")
            for checkpoint in (kept.last, kept.best):
                if checkpoint.exists():
                    describe(checkpoint)
                    digest_of(ph.load(checkpoint, "numpy"))
        same = _end(path) == expected
        campaign.expect_kept(same, f"training: run {run} ends with other weights or metrics")
        campaign.resumed += same and campaign.by_target["training"] > killed
        campaign.expect(not _unfinished(path), f"training: {_unfinished(path)} are left")


def _search(campaign: _Campaign, device: str) -> None:
    """Kill a search for tuned choices while its workers run, and read the stored choices."""
    command = [sys.executable, "-m", "polyhal", "tune", "--device", device]
    search = [*command, "--budget", "20s", "--only", "softmax"]
    with subprocess.Popen(search, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(campaign.random.random() * _SEARCH)
        process.kill()
    campaign.by_target["tuning"] += 1
    shown = subprocess.run([*command, "--show"], capture_output=True, text=True, check=False)
    campaign.expect(shown.returncode == 0, f"tuning: the next start fails: {shown.stderr}")


def _end(path: Path) -> tuple[str, list[tuple[Any, ...]]]:
    """Train to the end. Returns a digest of the last checkpoint, and the metrics that no clock decides."""
    receive, process = _started(victims.train, path, 0)
    while _received(receive, _END):
        pass
    process.join(_END)
    if process.exitcode != 0:
        raise RuntimeError(f"training in {path} ended with {process.exitcode}")
    folder = RunFolder(path)
    rows = [(r.step, r.epoch, r.loss, r.val_loss, r.lr) for r in folder.metrics.rows()]
    return digest_of(ph.load(folder.last, "numpy")), rows


if __name__ == "__main__":
    print(kills(*map(int, sys.argv[1:])))
