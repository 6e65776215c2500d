"""Programs built ahead: typical calls still lower, and helpers build them and clean up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import polyhal
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.hal.core.kernels.background_build import BackgroundBuilder
from polyhal.hal.core.kernels.call_log import KernelCall, typical_calls
from polyhal.hal.core.kernels.prebuild import BuildClaims, help_out
from polyhal.hal.core.settings import processes
from polyhal.hal.core.settings.file_lock import FileLock
from polyhal.hal.device import Device
from polyhal.hal.protocol import Declined

OPS = (("divide", "relu_grad"), ("layer_norm", "gelu"))
"""Ops of each typical program that need no program of the other."""


def digests(backend: OpenCLBackend, calls: Sequence[KernelCall]) -> list[str]:
    """Return the programs of calls, which are not built. Asserts that there is a kernel for each call."""
    wanted: dict[str, None] = {}
    backend.kernels.build_filter = lambda kernel, digest: bool(wanted.setdefault(digest))
    for call in calls:
        launch = backend.lower(call.op, call.inputs, call.outputs, call.params)
        assert not isinstance(launch, Declined), f"{call.op}: {launch.reason}"
    return list(wanted)


def test_typical_calls_are_lowered(found: Any) -> None:
    backend = OpenCLBackend(found)
    classifier, transformer = (digests(backend, calls) for calls in typical_calls())
    assert len(classifier) >= 10
    assert len(transformer) >= 25
    assert backend.kernels.program_builds == []


def test_a_helper_builds_unclaimed_calls_from_the_end(
    found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    calls = [c for c in typical_calls()[0] if c.op in ("relu", "divide")]
    broken = KernelCall("divide", calls[0].inputs, calls[0].outputs, {})
    monkeypatch.setattr("polyhal.hal.core.kernels.prebuild.typical_calls", lambda: [[*calls, broken]])
    backend = OpenCLBackend(found)
    folder = tmp_path / "claims"
    folder.mkdir()
    help_out(Device.opened("helper", backend), folder)
    done = {f.name for f in folder.iterdir() if f.suffix == ".done"}
    claimed = {f.name for f in folder.iterdir()} - done
    assert done == {f"{digest}.done" for digest in claimed}
    assert len(claimed) == len(backend.kernels.program_builds) >= 1
    second = OpenCLBackend(found)
    help_out(Device.opened("other", second), folder)
    assert second.kernels.program_builds == []


@pytest.mark.parametrize("first", [0, 1])
def test_a_helper_builds_the_program_first_that_has_most_in_common_with_the_caller(
    found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    programs = [[c for c in calls if c.op in ops] for calls, ops in zip(typical_calls(), OPS, strict=True)]
    monkeypatch.setattr("polyhal.hal.core.kernels.prebuild.typical_calls", lambda: programs)
    backend = OpenCLBackend(found)
    expected = [d for calls in (programs[first], programs[1 - first]) for d in digests(backend, calls)[::-1]]
    claims = BuildClaims(tmp_path)
    assert claims("waits", claimed := digests(backend, programs[first])[0])
    built: list[str] = []
    monkeypatch.setattr(BuildClaims, "finish", lambda self: built.extend(self._claimed - set(built)))
    help_out(Device.opened("helper", backend), tmp_path)
    assert built == [d for d in expected if d != claimed]


def test_a_helper_begins_with_the_programs_that_all_typical_programs_need(
    found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller has not requested a program yet."""
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    shared, other = (next(c for c in typical_calls()[1] if c.op == op) for op in ("multiply", "gelu"))
    monkeypatch.setattr("polyhal.hal.core.kernels.prebuild.typical_calls", lambda: [[shared], [shared, other]])
    backend = OpenCLBackend(found)
    first, second = digests(backend, [shared]), digests(backend, [other])
    built: list[str] = []
    monkeypatch.setattr(BuildClaims, "finish", lambda self: built.extend(self._claimed - set(built)))
    help_out(Device.opened("helper", backend), tmp_path)
    assert built == [*first, *second]


def test_announced_calls_are_built_first_from_the_last(
    found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(BackgroundBuilder, "_start", lambda self: None)
    typical = [[next(c for c in calls if c.op == op) for op in ("add", "cast")] for calls in typical_calls()]
    monkeypatch.setattr("polyhal.hal.core.kernels.prebuild.typical_calls", lambda: typical)
    announced = [next(c for c in typical_calls()[1] if c.op == op) for op in ("gelu", "layer_norm")]
    ahead = BackgroundBuilder("unused")
    ahead._claims = BuildClaims(tmp_path)
    ahead.announce([announced[0], KernelCall("gelu", (), (), {"unknown": object()}), *announced[1:]])
    backend = OpenCLBackend(found)
    expected = digests(backend, announced[::-1])
    built: list[str] = []
    monkeypatch.setattr(BuildClaims, "finish", lambda self: built.extend(self._claimed - set(built)))
    help_out(Device.opened("helper", backend), tmp_path)
    assert built[: len(expected)] == expected
    assert len(built) > len(expected)


def test_kernels_of_a_captured_step_are_announced(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device.opened("announcing", OpenCLBackend(found))
    ahead = BackgroundBuilder("unused")
    announced: list[KernelCall] = []
    monkeypatch.setattr(BackgroundBuilder, "is_running", True)
    monkeypatch.setattr(ahead, "announce", announced.extend)
    monkeypatch.setattr(device.backend.runtime.programs, "background", ahead)
    lowered: list[KernelCall] = []
    lower = device.backend.lower

    def noted(op: str, inputs: Any, outputs: Any, params: Any) -> Any:
        lowered.append(KernelCall(op, inputs, outputs, params))
        return lower(op, inputs, outputs, params)

    step = polyhal.jit(lambda x: (x @ x.T).exp().sum())
    x = polyhal.ones((4, 8), device=device)
    step(x)
    monkeypatch.setattr(device.backend, "lower", noted)
    step(x)
    assert announced
    texts = [list(dict.fromkeys(json.dumps(call.to_json()) for call in calls)) for calls in (announced, lowered)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("cached", [False, True])
def test_helpers_start_with_the_first_allocation_if_nothing_is_cached(
    found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("POLYHAL_BUILD_AHEAD", "1")
    started: list[BackgroundBuilder] = []
    monkeypatch.setattr(BackgroundBuilder, "_start", lambda self: started.append(self))
    backend = OpenCLBackend(found)
    programs = backend.runtime.programs
    if cached:
        cache = programs.disk or programs._markers
        assert cache is not None
        cache.store("program", b"")
    for _ in range(2):
        backend.deallocate(backend.allocate(64))
    assert len(started) == (not cached)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2 if hasattr(os, "sched_getaffinity") else False, reason="one core")
def test_a_first_start_has_helpers_and_cleans_up(found: Any, tmp_path: Path) -> None:
    code = f"""
import numpy as np, polyhal as ph
device = ph.Device("opencl:{found.info.selector}")
x = ph.tensor(np.arange(6, dtype=np.float32), device=device)
print((x * 2.0 + x).numpy().tolist())
print(len(device.backend.runtime.programs.background._helpers))
"""
    environment = {"POLYHAL_BUILD_AHEAD": "1", "POLYHAL_CACHE_DIR": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    values, helpers = done.stdout.splitlines()
    assert values == "[0.0, 3.0, 6.0, 9.0, 12.0, 15.0]"
    assert int(helpers) >= 1
    assert not (tmp_path / "building-ahead.lock").exists()
    assert not list((tmp_path / "tmp").glob("polyhal-ahead-*"))


def test_a_lost_helper_blocks_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    ahead = BackgroundBuilder("no-such-backend")
    ahead.wait_for_turn("a.cl", "first")
    assert ahead._folder is not None
    other = BuildClaims(Path(ahead._folder))
    assert other("a.cl", "second")
    for helper in ahead._helpers:
        helper.kill()
        helper.wait()
    begun = time.monotonic()
    ahead.wait_for_turn("a.cl", "second")
    assert time.monotonic() - begun < 5
    ahead.stop()
    assert not list(tmp_path.glob("*.lock"))


def test_helpers_end_with_their_parent(found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    ahead = BackgroundBuilder(f"opencl:{found.info.selector}")
    ahead.wait_for_turn("a.cl", "first")
    for helper in ahead._helpers:
        assert helper.stdin is not None
        helper.stdin.close()  # as after a kill of the process
        assert helper.wait(timeout=20) is not None
    ahead.stop()


def test_one_process_has_helpers_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    lock = FileLock(tmp_path / "building-ahead.lock")
    assert lock.acquire()
    ahead = BackgroundBuilder("no-such-backend")
    ahead.wait_for_turn("a.cl", "first")
    assert ahead._helpers == []
    lock.release()
    late = BackgroundBuilder("no-such-backend")
    late.wait_for_turn("a.cl", "first")
    assert late._helpers
    late.stop()
    assert not lock.path.exists()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "building-ahead.lock").write_text(f"{processes.HOST}-{ended.pid}")
    ahead = BackgroundBuilder("no-such-backend")
    ahead.wait_for_turn("a.cl", "first")
    assert ahead._helpers
    ahead.stop()
