"""PoCL's worker threads are bound to one core each if the process may use all cores and the user has not set otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polyhal.backends.opencl import pocl_affinity

_CORES = 4


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Simulate Linux with four allowed cores and no variables set."""
    for name in ("POCL_AFFINITY", "POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "POLYHAL_BUILDS_ONLY"):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it afterwards in any case
        monkeypatch.delenv(name)
    monkeypatch.setattr(pocl_affinity, "_LOADED_FILES", Path(os.devnull))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "cpu_count", lambda: _CORES)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(_CORES)), raising=False)
    return monkeypatch


def test_workers_are_bound_where_all_cores_are_allowed(machine: pytest.MonkeyPatch) -> None:
    assert pocl_affinity.decide() == pocl_affinity.WorkerAffinity(True, "unless POCL_AFFINITY=0")
    with pocl_affinity.applied():
        assert os.environ["POCL_AFFINITY"] == "1"
    assert "POCL_AFFINITY" not in os.environ  # child processes may be restricted to other cores


@pytest.mark.parametrize("allowed", [{0, 1}, {1, 2, 3}, {0, 1, 2, 4}])
def test_workers_of_a_process_with_fewer_cores_are_not_bound(machine: pytest.MonkeyPatch, allowed: set[int]) -> None:
    machine.setattr(os, "sched_getaffinity", lambda _: allowed)
    _left_alone("not use all cores")


@pytest.mark.parametrize(("value", "bound"), [("0", False), ("1", True), ("", False)])
def test_the_users_setting_stays(machine: pytest.MonkeyPatch, value: str, bound: bool) -> None:
    machine.setenv("POCL_AFFINITY", value)
    assert pocl_affinity.decide() == pocl_affinity.WorkerAffinity(bound, f"as POCL_AFFINITY={value} says")
    with pocl_affinity.applied():
        assert os.environ["POCL_AFFINITY"] == value
    assert os.environ["POCL_AFFINITY"] == value


@pytest.mark.parametrize("name", ["POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "POLYHAL_BUILDS_ONLY"])
def test_workers_are_not_bound_in_helpers_or_with_fewer_workers(machine: pytest.MonkeyPatch, name: str) -> None:
    machine.setenv(name, "1")
    _left_alone("only builds kernels" if name.startswith("POLYHAL") else name)


def test_workers_are_not_bound_on_other_systems(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(sys, "platform", "darwin")
    _left_alone("Linux only")


def test_the_variable_of_a_loaded_driver_is_not_changed(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 0 00:00 1 /usr/lib/libpocl.so.2.9.0\n")
    machine.setattr(pocl_affinity, "_LOADED_FILES", maps)
    with pocl_affinity.applied():
        assert "POCL_AFFINITY" not in os.environ


def _left_alone(reason: str) -> None:
    decided = pocl_affinity.decide()
    assert not decided.bound
    assert reason in str(decided)
    with pocl_affinity.applied():
        assert "POCL_AFFINITY" not in os.environ


_THREADS = """
import os
from polyhal.backends.opencl import discovery
before = os.sched_getaffinity(0)
names = [f.platform for f in discovery.devices()]
assert os.sched_getaffinity(0) == before  # the thread that asks stays free
# Several versions of PoCL have workers of their own.
bound = sorted({min(m) for m in map(os.sched_getaffinity, map(int, os.listdir("/proc/self/task"))) if len(m) == 1})
print("Portable Computing Language" in names, bound)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed there on Linux only")
@pytest.mark.parametrize("value", ["", "0"])
@pytest.mark.usefixtures("pocl")
def test_the_driver_binds_its_workers(value: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("POCL_", "POLYHAL_BUILDS_ONLY"))}
    if value:
        environment["POCL_AFFINITY"] = value
    allowed = os.sched_getaffinity(0)
    code = subprocess.run([sys.executable, "-c", _THREADS], env=environment, capture_output=True, text=True, check=True)
    present, _, bound = code.stdout.strip().partition(" ")
    if present != "True" or len(allowed) == 1 or allowed != set(range(os.cpu_count() or 0)):
        pytest.skip("needs PoCL, and all of several cores")
    assert bound == ("[]" if value else str(sorted(allowed)))
