"""The watchdog: a kernel that does not end is reported by name, whether the host waits in it or for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faulty_kernels as faulty
import pytest

import polyhal as ph
from polyhal.hal.core.settings.state import settings
from polyhal.hal.device import Device
from polyhal.hal.protocol import Feature, Launch, SimpleLaunch

F = ph.nn.functional


class Slow(faulty.FaultyKernels):
    """Softmax ends when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            launch(*args)
            self.let_go.wait(10)

        return SimpleLaunch("endless rows", run)


class Marker:
    """An event that is complete when a condition holds."""

    def __init__(self, complete: Callable[[], bool]) -> None:
        self.is_complete = complete

    def wait(self) -> None:
        while not self.is_complete():
            time.sleep(0.01)


class SlowQueue(faulty.FaultyKernels):
    """A device with a queue in which softmax, and later work, ends when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()
        self.stuck = False

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            launch(*args)
            self.stuck = True

        return SimpleLaunch("endless rows", run)

    def open_stream(self) -> Any:
        return None

    def switch_stream(self, stream: Any) -> Any:
        return None

    def mark(self) -> Marker:
        return Marker(self.let_go.is_set) if self.stuck else Marker(lambda: True)

    def wait_for(self, event: Any) -> None:
        """Nothing else runs."""


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize("captured", [False, True])
def test_a_kernel_that_the_host_waits_in_is_named(captured: bool) -> None:
    backend = Slow()
    device = faulty.opened(backend)
    backend.let_go.set()

    def step(x: ph.Tensor) -> ph.Tensor:
        return F.softmax(x + 1.0, -1) * 2.0  # it hangs

    run, x = (ph.jit(step) if captured else step), ph.ones((2, 3), device=device)
    for _ in range(3):
        run(x)
    backend.let_go.clear()
    said: list[str] = []

    def report(text: str) -> None:
        said.append(text)
        backend.let_go.set()

    with ph.watchdog(0.1, report):
        run(x)
    assert said[0].startswith("[watchdog] softmax has not ended after 0.")
    assert "; expected at most 0.1 s; it was called at" in said[0]
    assert "# it hangs and runs as native kernel endless rows (on faulty)" in said[0]
    assert said[1].startswith("[watchdog] softmax ended after ")
    assert len(said) == 2


def test_the_oldest_work_of_a_queue_is_named() -> None:
    backend = SlowQueue()
    device = faulty.opened(backend)
    assert device.features & Feature.STREAMS
    said: list[str] = []
    with ph.watchdog(0.1, said.append):
        y = F.softmax(ph.ones((2, 3), device=device), -1)
        y = y + 1.0
        y * 2.0
        wait_until(lambda: said)
        assert "softmax has not ended after 0." in said[0]
        assert ", 2 ops wait behind it; expected" in said[0]
        backend.let_go.set()
        wait_until(lambda: len(said) > 1)
    assert said[1].startswith("[watchdog] softmax ended after ")
    assert len(said) == 2


def test_work_that_ends_in_time_or_in_an_error_is_not_reported(device: Device) -> None:
    said: list[str] = []
    broken = faulty.opened(faulty.RaisesAtLaunch())
    with ph.watchdog(1.0, said.append):
        (ph.ones((4, 4), device=device) @ ph.ones((4, 4), device=device)).numpy()
        with pytest.raises(ph.errors.BackendError):
            F.softmax(ph.ones((2, 3), device=broken), -1)
        time.sleep(0.3)
    assert said == []
    assert settings.observers == ()


def test_a_time_above_zero_is_needed() -> None:
    with pytest.raises(ValueError, match=r"^\[watchdog\] got 0 seconds; expected more than 0$"), ph.watchdog(0):
        pytest.fail("the block is not entered")


PROGRAM = """
import time
from polyhal.hal.ops import OPS
import polyhal as ph
import faulty_kernels
from polyhal.hal.protocol import SimpleLaunch

class Slow(faulty_kernels.FaultyKernels):
    def spoil(self, launch, inputs):
        return SimpleLaunch("slow rows", lambda *args: (launch(*args), time.sleep(1.0)))

ph.nn.functional.softmax(ph.ones((2, 3), device=faulty_kernels.opened(Slow())), -1)
"""


def test_a_whole_program_is_watched_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    monkeypatch.setenv("POLYHAL_WATCHDOG", "0.2")
    monkeypatch.setenv("PYTHONPATH", str(Path(faulty.__file__).parent), prepend=":")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert "[watchdog] softmax has not ended after 0." in done.stderr, done.stderr
    assert f"{script}:12" in done.stderr
