"""`torch.profiler` on the device: kernels in tables, in the list of events and in chrome traces."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import first_of
from torch.profiler import ProfilerActivity, profile, record_function, schedule

import polyhal
import polyhal.torch
from polyhal.hal.device import Device

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


@pytest.fixture
def timed() -> Any:
    """The name of PyTorch's device on a device with timestamps."""
    name = first_of("opencl") or pytest.skip("no device with timestamps is under test")
    previous = polyhal.get_default_device()
    polyhal.set_default_device(Device(name))
    yield "polyhal"
    polyhal.set_default_device(previous)


def _kernels(measured: Any) -> list[Any]:
    return [e for e in measured.events() if e.device_type == torch.autograd.DeviceType.PrivateUse1]  # type: ignore[attr-defined]


def test_kernels_are_device_events_of_a_profile(timed: str) -> None:
    x = torch.ones(64, 64, device=timed)
    (x @ x).exp().cpu()
    with profile(activities=BOTH) as measured:
        for _ in range(3):
            (x @ x).exp()
    table = measured.key_averages()
    rows = {row.key: row for row in table if row.device_time_total}
    assert sorted(row.count for row in rows.values()) == [3, 3]
    assert any("gemm" in name for name in rows)
    text = table.table(sort_by="self_device_time_total", row_limit=2)
    assert "Self POLYHAL" in text
    assert all(name in text for name in rows)
    assert len(_kernels(measured)) == 6
    assert sum(row.self_device_time_total for row in rows.values()) == pytest.approx(
        sum(e.time_range.elapsed_us() for e in _kernels(measured))
    )


def test_a_chrome_trace_has_the_kernels_at_their_time(timed: str, tmp_path: Path) -> None:
    """Clocks are compared by markers: the error is at most the round trip of the fastest of them, far below the pauses."""
    x = torch.ones(64, 64, device=timed)
    (x @ x).cpu()
    with profile(activities=BOTH) as measured:
        for _ in range(2):
            with record_function("work"):
                (x @ x).cpu()
            time.sleep(0.05)
    path = tmp_path / "trace.json"
    measured.export_chrome_trace(str(path))
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    blocks = sorted((e for e in events if e["name"] == "work"), key=lambda e: e["ts"])
    assert len(kernels) == len(blocks) == 2
    for kernel, block in zip(kernels, blocks, strict=True):
        assert block["ts"] - 20_000 < kernel["ts"] < kernel["ts"] + kernel["dur"] < block["ts"] + block["dur"] + 20_000
    (process,) = {e["pid"] for e in kernels}
    (name,) = [e["args"]["name"] for e in events if e.get("pid") == process and e["name"] == "process_name"]
    assert name.startswith("polyhal:0 ")


@pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end of each cycle")
def test_cycles_of_a_schedule_have_their_own_kernels(timed: str) -> None:
    x = torch.ones(8, device=timed)
    found = []
    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=1, repeat=2),
        on_trace_ready=lambda measured: found.append(len(_kernels(measured))),
    ) as measured:
        for step in range(6):
            for _ in range(step):
                x.exp()
            measured.step()
    assert found == [2, 5]


def test_kernels_of_a_recorded_step_are_in_a_profile(timed: str) -> None:
    weight = torch.ones(16, 16, device=timed)

    @polyhal.torch.jit
    def step(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight).sum()

    x = torch.ones(16, 16, device=timed)
    for _ in range(4):
        step(x)
    with profile(activities=BOTH) as measured:
        step(x)
    assert any("gemm" in e.name for e in _kernels(measured))


def test_an_older_profile_of_the_device_has_its_kernels(timed: str) -> None:
    x = torch.ones(8, device=timed)
    with torch.autograd.profiler.profile(use_device=timed) as measured:
        x.exp()
    assert len([row for row in measured.key_averages() if row.device_time_total]) == 1


def test_a_profile_without_the_device_has_no_kernels(timed: str) -> None:
    x = torch.ones(8, device=timed)
    with profile(activities=[ProfilerActivity.CPU]) as measured:
        x.exp()
    assert not _kernels(measured)
    assert any(row.key == "aten::exp" for row in measured.key_averages())


def test_a_device_without_timestamps_has_host_times_only(torch_on_numpy: str) -> None:
    x = torch.ones(8, device=torch_on_numpy)
    with profile() as measured:
        x.exp()
    assert not _kernels(measured)
    (row,) = [row for row in measured.key_averages() if row.key == "aten::exp"]
    assert row.cpu_time_total > 0


def test_profiles_have_the_paths_of_modules(timed: str) -> None:
    """Ops of a forward pass belong to the innermost module; afterwards, calls run without hooks."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
            self.head = torch.nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] == 3:
                raise ValueError("three rows")
            return self.head(self.body(x)).exp()  # type: ignore[no-any-return]

    model = Net().to(timed)
    x = torch.ones(4, 8, device=timed)
    with torch.no_grad():
        model(x).cpu()
        with polyhal.profile() as found:
            with pytest.raises(ValueError, match="three rows"):
                model(x[:3])
            model(x)
            x.sin()
    modules = {call.op: call.location.module for call in found.records.calls}
    assert modules["tanh"] == "body.1"
    assert (modules["exp"], modules["sin"]) == ("", "")
    assert {"body.0", "head"} <= {call.location.module for call in found.records.calls}
    assert not torch.nn.modules.module._global_forward_hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks
