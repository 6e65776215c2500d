"""The kit's checks of shared memory: emulated devices pass them, and faulty backends do not."""

from __future__ import annotations

from typing import Any

import pytest
from emulated_backend import Emulation

from polyhal.backends.cuda.memory import CudaMemory
from polyhal.hal.device import Device
from polyhal.hal.testing import verify

_CHECKS = ("addresses", "both_ways", "release", "streams", "mark")


@pytest.mark.parametrize("name", _CHECKS)
def test_emulated_devices_pass(emulation: Emulation, name: str) -> None:
    report = verify(emulation.device, only=f"contract/foreign_memory/{name}")
    assert report.ok, report
    assert report.passed == 1


def _nothing(*args: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "member", "fault"),
    [
        ("addresses", "memory_space", lambda: (2, 7)),
        ("addresses", "number_of_device", lambda address: 0),
        ("both_ways", "import_device_memory", lambda address, nbytes: CudaMemory(address - 4, nbytes)),
        ("streams", "let_stream_wait", _nothing),
        ("streams", "wait_for_stream", _nothing),
        ("streams", "stream_number", lambda: 1),
    ],
)
def test_faults_are_found(
    emulation: Emulation, monkeypatch: pytest.MonkeyPatch, name: str, member: str, fault: Any
) -> None:
    monkeypatch.setattr(emulation.backend, member, fault)
    assert not verify(Device.opened("faulty", emulation.backend), only=f"contract/foreign_memory/{name}").ok


def test_an_event_of_the_threads_stream_alone_is_found(emulation: Emulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation.backend, "mark_everything", emulation.backend.mark)
    assert not verify(emulation.device, only="contract/foreign_memory/mark").ok
