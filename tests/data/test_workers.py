"""Loaders with worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worker_cases as cases

import polyhal as ph
from polyhal.data import DataLoader, TensorDataset, get_worker_info, workers
from polyhal.hal.system.discovery.registry import registry

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["numpy", *(["opencl"] if registry().probe("opencl") else [])])
def test_batches_come_in_order_from_other_processes(name: str) -> None:
    device = ph.Device(name)
    loader = DataLoader(cases.Squares(), 3, num_workers=2, device=device)
    batches = list(loader)
    assert [b["y"].tolist() for b in batches] == [[0, 1, 4], [9, 16, 25], [36, 49, 64], [81]]
    assert [b["x"].shape for b in batches] == [(3, 3)] * 3 + [(1, 3)]
    assert {b["x"].device for b in batches} == {device}
    assert [b["worker"].tolist()[0] for b in batches] == [0, 1, 0, 1]
    assert os.getpid() not in {n for b in batches for n in b["process"].tolist()}
    assert not multiprocessing.active_children()


def test_a_dataset_of_tensors_is_read_on_the_host_of_a_worker(device: ph.Device) -> None:
    x = ph.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    (batch,) = DataLoader(cases.OfTensors(x), 2, num_workers=1, device=device)
    assert batch[0].tolist() == x.tolist()
    assert batch[0].device is device
    assert set(batch[1]) == {"numpy"}


def test_persistent_workers_stay_and_shuffle_as_without() -> None:
    here = DataLoader(cases.Squares(), 4, shuffle=True, seed=3, device="numpy")
    there = DataLoader(cases.Squares(), 4, shuffle=True, seed=3, device="numpy", num_workers=1, persistent_workers=True)
    processes = set()
    for _ in range(2):
        a, b = list(here), list(there)
        assert [x["y"].tolist() for x in a] == [x["y"].tolist() for x in b]
        processes |= {n for x in b for n in x["process"].tolist()}
    next(iter(there))
    assert len(list(there)) == 3, "an abandoned epoch leaves nothing behind"
    assert len(processes) == 1
    del there, here


@pytest.mark.parametrize("prefetch", [0, 2])
def test_errors_of_workers_keep_their_class_and_traceback(prefetch: int) -> None:
    loader = DataLoader(cases.Failing(), 2, num_workers=1, device="numpy", prefetch=prefetch)
    seen: list[Any] = []
    with pytest.raises(LookupError, match=r"(?s)worker process 0.*worker_cases\.py.*sample 5 is missing"):
        seen.extend(b["y"].tolist() for b in loader)
    assert seen == [[0, 1], [4, 9]]


def test_a_worker_that_dies_is_reported() -> None:
    with pytest.raises(RuntimeError, match="ended with code 3"):
        list(DataLoader(cases.Dying(), 2, num_workers=1, device="numpy"))


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_a_worker_that_is_ended_by_a_signal_is_reported_by_its_name(name: str) -> None:
    with pytest.raises(
        RuntimeError, match=rf"worker process 0 \(process \d+\) was ended by signal \d+ \({name}"
    ) as caught:
        list(DataLoader(cases.Killed(signal.Signals[name]), 2, num_workers=1, device="numpy"))
    assert "__main__" not in str(caught.value)


def test_the_error_of_a_script_without_a_guard_names_the_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\nfrom polyhal.data import TensorDataset, DataLoader\n"
        "list(DataLoader(TensorDataset(np.zeros(4)), 2, num_workers=1, device='numpy'))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "must start under `if __name__ == '__main__':`" in done.stderr.splitlines()[-1]


def test_timeouts_and_early_ends_do_not_hang() -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError, match="no batch within"):
        list(DataLoader(cases.Slow(), 2, num_workers=1, timeout=0.5, device="numpy"))
    assert time.monotonic() - started < 30


def test_random_numbers_of_samples_do_not_depend_on_workers() -> None:
    def numbers(workers: int) -> np.ndarray:
        keep = workers > 0
        loader = DataLoader(cases.Noise(8), 2, num_workers=workers, seed=5, device="numpy", persistent_workers=keep)
        return np.concatenate([x.numpy() for _ in range(2) for x in loader])

    none, one, two = numbers(0), numbers(1), numbers(2)
    assert np.array_equal(none[:, 0], one[:, 0])
    assert np.array_equal(one[:, 0], two[:, 0])
    assert len(set(none[:, 0])) == 16, "each epoch has its own"
    assert np.array_equal(two, numbers(2)), "those of Python and NumPy depend on the worker"
    assert len(set(two.ravel())) == two.size


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_are_split_by_worker(workers: int) -> None:
    batches = [b.tolist() for b in DataLoader(cases.Shards(), 2, num_workers=workers, device="numpy")]
    assert sorted(n for b in batches for n in b) == list(range(10))
    single = list(DataLoader(cases.Shards(), None, num_workers=workers, device="numpy"))
    assert sorted(map(int, single)) == list(range(10))


def test_functions_run_in_workers() -> None:
    greeted = DataLoader(cases.Greeted(4), 1, num_workers=2, worker_init_fn=cases.greet, device="numpy")
    assert [b.item() for b in greeted] == [0, 1, 0, 1]
    sums = list(DataLoader(cases.Squares(4), 2, num_workers=1, collate_fn=cases.total, device="numpy"))
    assert [(int(b["sum"].item()), b["count"]) for b in sums] == [(1, 2), (13, 2)]
    assert get_worker_info() is None


def test_large_batches_pass() -> None:
    data = np.arange(600_000, dtype=np.float32).reshape(6, 100_000)
    batches = list(DataLoader(TensorDataset(data, np.arange(6)), 2, num_workers=1, prefetch_factor=3, device="numpy"))
    assert np.array_equal(np.concatenate([x.numpy() for x, _ in batches]), data)


def test_functions_that_cannot_be_sent_are_named() -> None:
    with pytest.raises(TypeError, match="top level of a module"):
        list(DataLoader(cases.Squares(), 2, num_workers=1, collate_fn=lambda s: s, device="numpy"))


class _TwoArgumentsError(Exception):
    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"{name} {number}")


def test_errors_that_cannot_be_raised_again_say_why() -> None:
    class LocalError(Exception):
        pass

    for error, reason in (
        (LocalError("far away"), "cannot be sent: .*Local"),
        (_TwoArgumentsError("a", 1), "cannot be constructed from a text: Type"),
    ):
        try:
            raise error
        except Exception as caught:
            report = workers._report(0, caught)
        with pytest.raises(RuntimeError, match=rf"(?s){type(error).__name__} in worker process 0.*{reason}"):
            workers._raise(report)
