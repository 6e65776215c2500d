"""A forked child that uses a device of its parent raises an error instead of a deadlock; a spawned child has its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import polyhal as ph

pytestmark = pytest.mark.slow

_FORK = """
import os, sys, threading
import polyhal as ph
from polyhal.hal.errors import PolyhalError

device = ph.Device(sys.argv[1])
x = ph.ones((64, 64), device=device)
step = ph.jit(lambda x: (x @ x).sum(), warm_up=False)
for _ in range(3):
    step(x).item()
y = x + 1
host = ph.ones((3,), device="numpy")
pending = (x @ x).numpy_async()
stream = device.stream()

def attempt(name, action):
    try:
        action()
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
    else:
        print(f"{name}: done", flush=True)

def increment():
    global x
    x += 1

child = os.fork()
if not child:
    attempt("known op", lambda: x + 1)
    attempt("new op", lambda: (x / 3).exp())
    attempt("in place", increment)
    attempt("step", lambda: step(x))
    attempt("numpy", lambda: x.numpy())
    attempt("numpy_async", lambda: x.numpy_async())
    attempt("synchronize", device.synchronize)
    attempt("stream", lambda: device.stream().__enter__())
    attempt("stream of the parent", lambda: stream.__enter__())
    attempt("event", device.record_event)
    attempt("upload", lambda: ph.ones((3,), device=device))
    attempt("opened again", lambda: ph.Device(sys.argv[1]))
    attempt("host", lambda: (host + 1).numpy())
    attempt("name", lambda: str(device))
    os._exit(0)
_, status = os.waitpid(child, 0)
ending = os.fork()
if not ending:
    sys.exit(3)
print("ending:", os.waitstatus_to_exitcode(os.waitpid(ending, 0)[1]), flush=True)
print("parent", os.waitstatus_to_exitcode(status), (y + x).sum().item(), step(x).item(), pending.result()[0, 0], flush=True)
"""

_SPAWN = """
import multiprocessing, sys
import polyhal as ph

def work(name):
    print("child", (ph.ones((3,), device=name) + 1).sum().item(), flush=True)

if __name__ == "__main__":
    x = ph.ones((3,), device=sys.argv[1])
    process = multiprocessing.get_context("spawn").Process(target=work, args=(sys.argv[1],))
    process.start()
    process.join()
    print("parent", process.exitcode, x.sum().item())
"""


def _run(script: Path, device: ph.Device) -> dict[str, str]:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(script), device.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(line.split(" " if line[:6] == "parent" else ": ", 1) for line in done.stdout.splitlines())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_devices_of_the_parent_raise_in_a_forked_child(device: ph.Device, tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(_FORK)
    said = _run(script, device)
    assert said.pop("parent") == "0 12288.0 262144.0 64.0"
    assert said.pop("host") == said.pop("name") == "done"
    assert said.pop("ending") == "3", "a child that ends by sys.exit runs the exit handlers of drivers"
    if device.capabilities.reference:
        assert set(said.values()) == {"done"}
        return
    again = said.pop("opened again")
    if device.info.backend == "sim":
        assert again == "done", "a simulated GPU has no driver, so a child may open its own"
    else:
        assert again.startswith("DeviceUnavailableError: device ")
        assert "forked; use multiprocessing's start method" in again
    for name, problem in said.items():
        if device.info.backend == "sim" and problem.startswith(
            "BackendError: the device was opened before this process"
        ):
            continue  # the simulated GPU detects the fork itself, in previously recorded work
        expected = (
            "DeviceLostError: the device was opened before the process was forked; use multiprocessing's start method"
        )
        assert problem.startswith(expected), f"{name}: {problem}"


def test_a_spawned_child_opens_the_device_itself(device: ph.Device, tmp_path: Path) -> None:
    script = tmp_path / "spawns.py"
    script.write_text(_SPAWN)
    command = [sys.executable, str(script), device.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["child 6.0", "parent 0 3.0"], done.stderr
