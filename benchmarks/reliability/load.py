"""Load: many launches, many tensors, large tensors, many threads, exits with work in flight, forked children.

Each part raises if a result is wrong. Resources that remain allocated afterwards are leaks.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import polyhal as ph
from benchmarks.reliability.machine_devices import left_on, used_on
from benchmarks.reliability.processes import environment
from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.memory.host_memory import HostMemory
from polyhal.hal.errors import OutOfMemoryError, PolyhalError

_THREADS = 8
_SHARE = 0.8
"""Fraction of a device's memory that tensors fill."""
_SMALL_DEVICES = ("sim:teaching,memory=100MiB", "numpy:tiny_mem")
_MOST_OF_HOST = 0.5
"""Fraction of the host's free memory that may be filled while other programs run."""
_EXIT_TIMEOUT = 120.0

_EXITS = {
    "launches": "for _ in range(2000):\n    x = x @ x * 0.01",
    "reads": "futures = [(x + i).numpy_async() for i in range(64)]",
    "a thread": "import threading\nstop = False\ndef work(x):\n    while not stop:\n        x = x * 0.5 + 1\n"
    "threading.Thread(target=work, args=(x,), daemon=True).start()\nimport time; time.sleep(0.1)",
    "a captured step": "step = ph.jit(lambda a: (a @ a * 0.01).sum())\nfor _ in range(50):\n    step(x)",
    "an error": "for _ in range(200):\n    x = x @ x\nraise SystemExit(0)",
}
"""Programs that end while the device works."""


_FORK = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
x = ph.ones((64, 64), device=NAME)
step = ph.jit(lambda a: (a @ a).sum(), warm_up=False)
assert step(x).item() == step(x).item() == 64 ** 3
pending = (x @ x).numpy_async()
child = os.fork()
if not child:
    for attempt in (lambda: x + 1, lambda: step(x), lambda: x.numpy(), lambda: ph.Device(NAME).synchronize()):
        try:
            attempt()
        except PolyhalError as error:
            assert "fork" in str(error), error
        else:
            assert x.device.capabilities.reference or NAME.startswith("sim"), "the parent's device was used"
    assert (ph.ones((3,), device="numpy") + 1).tolist() == [2] * 3
    os._exit(7) if QUICKLY else sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert pending.result().tolist() == [[64.0] * 64] * 64 and step(x).item() == 64 ** 3
"""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Counts of a campaign."""

    launches: int
    live_tensors: int
    """On each device."""
    largest: int
    """Bytes in the tensors that filled most of a device."""
    threads: int
    exits: int
    forks: int
    leaks: int
    by_device: dict[str, dict[str, int]]
    findings: tuple[str, ...]


def load(
    devices: tuple[str, ...], *, launches: int = 1_000_000, tensors: int = 10_000, exits: int = 10, forks: int = 10
) -> LoadResult:
    """Run all parts on each device. `launches` are shared out among the devices."""
    findings: list[str] = []
    rows: dict[str, dict[str, int]] = {}
    before = used_on(devices)
    share = -(-launches // len(devices))
    for name in devices:
        row = rows[name] = {"launches": share, "live tensors": tensors, "threads": _THREADS}
        findings += _guarded(f"{name}: small launches", small_launches, name, share)
        findings += _guarded(f"{name}: live tensors", live_tensors, name, tensors)
        findings += _guarded(f"{name}: threads", threads_on, [name] * _THREADS, share // 10)
        row["exits"] = row["forks"] = 0
        for i in range(exits):
            findings += exit_with_work(name, list(_EXITS)[i % len(_EXITS)])
            row["exits"] += 1
        for i in range(forks if hasattr(os, "fork") else 0):
            findings += fork(name, quickly=bool(i % 2))
            row["forks"] += 1
    together = [devices[i % len(devices)] for i in range(_THREADS)]
    findings += _guarded("threads on several devices", threads_on, together, share // 10)
    for name in {**dict.fromkeys(_SMALL_DEVICES), **dict.fromkeys(devices)}:
        if name in _SMALL_DEVICES or _may_fill(name):
            sizes: list[int] = []
            findings += _guarded(f"{name}: large tensors", lambda n, out=sizes: out.append(large_tensors(n)), name)
            rows.setdefault(name, {})["bytes in large tensors"] = sum(sizes)
    leaks = [*left_on(before)]
    largest = max(row.get("bytes in large tensors", 0) for row in rows.values())
    total = {key: sum(row.get(key, 0) for row in rows.values()) for key in ("launches", "exits", "forks")}
    return LoadResult(
        total["launches"],
        tensors,
        largest,
        _THREADS,
        total["exits"],
        total["forks"],
        len(leaks),
        rows,
        (*findings, *leaks),
    )


def _may_fill(name: str) -> bool:
    """Return whether most of a device's memory can be filled without the host suffering: other programs use it, too."""
    info, host = ph.Device(name).info, HostMemory().total_and_available()
    if info.type is not DeviceType.CPU or host is None:
        return True
    return info.memory * _SHARE < host[1] * _MOST_OF_HOST


def _guarded(name: str, part: Callable[..., object], *arguments: object) -> list[str]:
    try:
        part(*arguments)
    except (PolyhalError, AssertionError) as error:
        return [f"{name}: {type(error).__name__}: {error}"]
    return []


# --- parts ----------------------------------------------------------------------------------------------------------


def small_launches(name: str, count: int) -> None:
    """Enqueue a chain of `count` additions, and check its result."""
    device = ph.Device(name)
    one = ph.ones((4,), device=device)
    x = ph.zeros((4,), device=device)
    for _ in range(count):
        x = x + one
    expected = min(count, 1 << 24)  # the largest integer up to which float32 is exact
    assert x.tolist() == [expected] * 4, x.tolist()


def live_tensors(name: str, count: int) -> None:
    """Hold `count` tensors at once, and check each of them."""
    device = ph.Device(name)
    before = device.memory_stats().used
    held = [ph.full((3,), i, dtype="int32", device=device) for i in range(count)]
    assert all(x.tolist() == [i] * 3 for i, x in enumerate(held))
    held.clear()
    gc.collect()
    assert device.memory_stats().used == before


def large_tensors(name: str) -> int:
    """Fill most of a device by one tensor, or by several if one allocation may not be that large. Returns the bytes."""
    device = ph.Device(name)
    device.empty_cache()
    total, limit = device.info.memory, device.capabilities.limits.max_allocation
    wanted = int(total * _SHARE)
    piece = min(wanted, int(limit * 0.99)) if limit else wanted
    held = []
    for start in range(0, wanted, piece):
        size = min(piece, wanted - start)
        held.append(ph.full((size,), 3, dtype="uint8", device=device))
    assert all(int(x[-1].item()) == 3 and int(x[0].item()) == 3 for x in held)
    try:
        _ = ph.zeros((int(total * (1 - _SHARE) * 1.2),), dtype="uint8", device=device)
    except OutOfMemoryError:
        pass
    else:
        raise AssertionError("more memory was given than there is")
    held.clear()
    device.empty_cache()
    return wanted


def threads_on(names: list[str], launches: int) -> None:
    """Run one thread per name on its device, and check the result of each."""
    wrong: list[str] = []

    def work(number: int, name: str) -> None:
        device = ph.Device(name)
        x, one = ph.zeros((8,), device=device), ph.full((8,), number + 1, device=device)
        try:
            for i in range(launches // len(names)):
                x = x + one
                if i % 100 == 99:
                    assert x[0].item() == (i + 1) * (number + 1)
        except BaseException as error:
            wrong.append(f"thread {number} on {name}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(i, name)) for i, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, "; ".join(wrong)


def exit_with_work(name: str, kind: str) -> list[str]:
    """End a process while its device works. Returns the failure."""
    return _ends(f"{name}, exit with {kind}", f"x = ph.ones((64, 64), device={name!r})\n{_EXITS[kind]}\n")


def fork(name: str, *, quickly: bool) -> list[str]:
    """Fork a process while its device works. The child ends with or without exit handlers. Returns the failure."""
    text = f"from polyhal.hal.errors import PolyhalError\nNAME, QUICKLY = {name!r}, {quickly}\n{_FORK}"
    return _ends(f"{name}, fork", text)


def _ends(what: str, text: str) -> list[str]:
    """Run a program, which must succeed without output."""
    command = [sys.executable, "-X", "faulthandler", "-c", f"import polyhal as ph\n{text}"]
    try:
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=_EXIT_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return [f"{what}: it hangs"]
    if done.returncode or done.stderr.strip():
        return [f"{what}: status {done.returncode}: {done.stderr.strip()[-500:]}"]
    return []


if __name__ == "__main__":
    print(load(tuple(sys.argv[1:]), launches=20_000, tensors=2_000, exits=5, forks=2))
