"""`torch.distributed` on the device: two processes on two devices, DDP, FSDP, and the loss of a process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from devices import TEST_DEVICES

pytestmark = pytest.mark.slow

JOB = Path(__file__).with_name("distributed_job.py")
COLLECTIVES = (
    *("all_reduce", "other_reductions", "reduce", "reduce_scatter", "broadcast", "all_gather"),
    *("gather_and_scatter", "all_to_all", "messages"),
)
PROGRAMS = ("objects", "groups_and_meshes", "many_elements", "data_parallel", "sharded")


class Ended(NamedTuple):
    code: int
    passed: frozenset[str]
    errors: str


@pytest.fixture(scope="module")
def ranks() -> list[Ended]:
    """The two processes after their end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = [d for d in TEST_DEVICES if d.startswith(("opencl", "numpy"))]
    devices = [names[0], names[-1]]
    processes = [
        subprocess.Popen(
            [sys.executable, str(JOB), str(rank), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "POLYHAL_DEVICE": device, "OMP_NUM_THREADS": "1"},
        )
        for rank, device in enumerate(devices)
    ]
    try:
        texts = [p.communicate(timeout=300) for p in processes]
    finally:
        for p in processes:
            p.kill()
    return [
        Ended(p.returncode, frozenset(out.splitlines()), err) for p, (out, err) in zip(processes, texts, strict=True)
    ]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_collectives_of_all_dtypes(ranks: list[Ended], collective: str) -> None:
    for ended in ranks:
        passed = [line for line in ended.passed if line.split()[0] == collective]
        assert len(passed) == 2 * 7, ended.errors


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_two_processes(ranks: list[Ended], program: str) -> None:
    for ended in ranks:
        assert program in ended.passed, ended.errors


def test_a_killed_process_ends_the_others_with_a_sentence(ranks: list[Ended]) -> None:
    survivor, killed = ranks
    assert killed.code == -9, killed.errors
    assert survivor.code == 1
    assert "[all_reduce] rank 0 has lost another rank; look at its output" in survivor.errors.splitlines()[-1]


def test_pytorch_still_takes_one_device_per_process() -> None:
    """PyTorch's devices in pure Python have no index but 0. When this fails, `polyhal:1` can become a second device."""
    assert torch.polyhal.device_count() == 1  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="polyhal"):
        torch.empty(1, device="polyhal:1")
    assert not hasattr(torch._C._acc.PrivateUse1Hooks, "device_count")
