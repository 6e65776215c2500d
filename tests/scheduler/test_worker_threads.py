"""Workers inherit the context and streams of their caller, end with the program, and all stop when one fails."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from faulty_kernels import FaultyKernels, LosesTheDevice, RaisesAtLaunch

import polyhal as ph
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, DeviceLostError, TransferError
from polyhal.hal.protocol import Launch, SimpleLaunch

from .random_steps import LONG, check
from .worker_devices import NUMPY, SECONDS, numpy_like, sim

pytestmark = pytest.mark.usefixtures("workers_under_a_limit")

_MODE = contextvars.ContextVar("mode", default="none")
_seen: list[tuple[str, str]] = []


class Looks(FaultyKernels):
    """Backend whose softmax records the context of its thread."""

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            _seen.append((_MODE.get(), np.geterr()["over"]))
            launch(*args)

        return SimpleLaunch("looking", run)


def test_workers_have_the_context_of_their_caller() -> None:
    a, b = numpy_like(Looks()), numpy_like(Looks())
    step = ph.jit(lambda x, y: (x.softmax(axis=0), y.softmax(axis=0)), warm_up=False)
    xs = [ph.ones((3,), device=d) for d in (a, b)]
    step(*xs)
    _seen.clear()
    token = _MODE.set("special")
    with np.errstate(over="raise"):
        step(*xs)
    _MODE.reset(token)
    assert _seen == [("special", "raise")] * 2


def test_workers_work_on_the_streams_of_their_caller() -> None:
    devices = [sim(), sim()]
    step = ph.jit(lambda x, y: (x + 1, (x * 2).to(devices[1]) + y), warm_up=False)
    backends: list[Any] = [d.backend for d in devices]
    xs = [ph.ones((3,), device=d) for d in devices]
    streams = [d.stream() for d in devices]
    for used in (False, True):
        if used:
            for s in streams:
                s.__enter__()
        step(*xs)
        before = [[q.written for q in b.driver.queues] for b in backends]
        a, b = step(*xs)
        after = [[q.written for q in b.driver.queues] for b in backends]
        grown = [[m > n for m, n in zip(x, y, strict=True)] for x, y in zip(after, before, strict=True)]
        assert grown == [[not used, used]] * 2
        if used:
            for s in streams:
                s.__exit__()
        assert a.tolist() == [2] * 3
        assert b.tolist() == [3] * 3


def test_two_threads_run_steps_at_the_same_time() -> None:
    devices = [*map(Device, NUMPY)]
    results: list[bool] = []

    def work(seed: int) -> None:
        program = np.random.default_rng(seed).integers(0, 99, (20, 4)).tolist()
        check([tuple(i) for i in program], devices, 8)  # type: ignore[misc]
        results.append(True)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 3


_PROGRAM = """
import os, sys
import numpy as np
import polyhal as ph
a, b = ph.Device("numpy"), ph.Device(sys.argv[1])
step = ph.jit(lambda x: ((x + 1).to(b) * 2, x - 1), warm_up=False)
x = ph.ones((64, 64), device=a)
for _ in range(3):
    y, z = step(x)
print(y.sum().item(), z.sum().item(), flush=True)
if sys.argv[2] == "fork":
    if os.fork() == 0:
        y, z = step(x)
        print("child", y.sum().item(), z.sum().item(), flush=True)
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
if sys.argv[2] == "late":
    import atexit
    atexit.register(lambda: print("late", step(x)[0].sum().item(), flush=True))
"""


@pytest.mark.parametrize("device", ["numpy:no_f64", "sim"])
@pytest.mark.parametrize("how", ["end", "fork", "late"])
def test_threads_end_with_the_program_but_survive_its_children(device: str, how: str) -> None:
    if how == "fork" and (device == "sim" or not hasattr(os, "fork")):
        pytest.skip("a device that does not survive a fork")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _PROGRAM, device, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    expected = {"end": [], "fork": ["child 16384.0 0.0", "0"], "late": ["late 16384.0"]}[how]
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (["16384.0 0.0", *expected], "", 0)


@pytest.mark.parametrize(("backend", "error"), [(RaisesAtLaunch, BackendError), (LosesTheDevice, DeviceLostError)])
@pytest.mark.parametrize("first", [True, False])
def test_an_error_in_a_worker_stops_the_others(
    backend: type[FaultyKernels], error: type[Exception], first: bool
) -> None:
    faulty, sound = numpy_like(backend()), numpy_like()
    a, b = (faulty, sound) if first else (sound, faulty)

    def step(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        x, y = x + 1, y + 1
        return x.softmax(axis=-1).to(b) + y.softmax(axis=-1) + (y * 2).to(a).to(b)

    captured = ph.jit(step, warm_up=False)
    xs = [ph.ones((3, 4), device=d) for d in (a, b)]
    for _ in range(3):
        with pytest.raises(error):
            captured(*xs)
    assert check(LONG[:20], [a, b])


def test_a_step_is_correct_after_a_failed_transfer() -> None:
    devices = [sim(), sim()]
    backends: list[Any] = [d.backend for d in devices]
    step = ph.jit(lambda x, y: (x + 1).to(devices[1]) * y + (x * 2).to(devices[1]), warm_up=False)
    xs = [ph.Tensor(np.full((4, 4), v, np.float32), device=d) for v, d in zip((2, 3), devices, strict=True)]
    for device in (0, 1):
        assert step(*xs).tolist() == [[13.0] * 4] * 4
        backends[device].faults.inject("corrupt_transfer", name="device to host" if device == 0 else "host to device")
        with pytest.raises(TransferError):
            step(*xs).numpy()
    for _ in range(2):
        assert step(*xs).tolist() == [[13.0] * 4] * 4


class Interrupts(FaultyKernels):
    """Backend whose softmax raises KeyboardInterrupt, as for Ctrl-C, while `pressed` is set."""

    pressed = False

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            if self.pressed:
                self.pressed = False
                raise KeyboardInterrupt
            launch(*args)

        return SimpleLaunch("interrupted", run)


@pytest.mark.parametrize("position", [0, 1])
def test_ctrl_c_stops_all_workers(position: int) -> None:
    backend = Interrupts()
    devices = [numpy_like(), numpy_like()]
    devices[position] = numpy_like(backend)
    step = ph.jit(lambda x, y: x.softmax(axis=0).to(devices[1]) + y.softmax(axis=0), warm_up=False)
    xs = [ph.zeros((4,), device=d) for d in devices]
    for _ in range(2):
        step(*xs)
        backend.pressed = True
        with pytest.raises(KeyboardInterrupt):
            step(*xs)
    assert step(*xs).tolist() == [0.5] * 4
