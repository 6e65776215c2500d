"""The profiler: ops, launches, copies, and their forms as text, trace and page."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.errors import PolyhalError
from polyhal.hal.launch_resources import SupportsLaunchResources
from polyhal.profiler import Profile, record_function


def test_writes_in_place_copies_and_transfers_are_in_the_table(device: Device) -> None:
    x, y = ph.ones((3, 4), device=device), ph.zeros((3, 4), device=device)
    with ph.profile(device) as found:
        x.add_(1.0)
        y.copy_(x)
        y.fill_(2.0)
        x.to(Device("numpy" if device.name != "numpy" else "numpy:no_f64"))
    assert {name: row.calls for name, row in found.ops.items()} == {"add": 1, "copy": 1, "fill": 1, "transfer": 1}


def test_an_optimizer_step_is_in_the_table(device: Device) -> None:
    layer = nn.Linear(4, 3).to(device)
    optimizer = optim.AdamW(layer.parameters())
    layer(ph.ones((2, 4), device=device)).sum().backward()
    with ph.profile(device) as found:
        optimizer.step()
    assert found.ops["adam_step"].calls == 1


def test_the_table_counts_floating_point_operations(device: Device) -> None:
    a = ph.ones((8, 16), device=device)
    with ph.profile(device) as found:
        a @ a.mT
        a.relu_()
    assert found.ops["matmul"].flops == 2 * 8 * 16 * 8
    title, product, *_ = (line for line in found.table().splitlines() if line.startswith(("op ", "matmul")))
    rate = 2 * 8 * 16 * 8 / (found.ops["matmul"].seconds * 1e9)
    assert float(product[: title.index("GFLOP/s") + len("GFLOP/s")].split()[-1]) == pytest.approx(rate, rel=5e-3)


def _profiled(device: Device, captured: bool) -> tuple[Profile, int]:
    """Profile two steps of a model, and return the profile with the line that calls the model."""
    with device:
        model = nn.Sequential(nn.Linear(8, 16), nn.Softmax(-1), nn.Linear(16, 4))
        optimizer = optim.SGD(model.parameters(), 0.1)

    def step(x: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    run = ph.jit(step) if captured else step
    data = np.ones((4, 8), np.float32)
    for _ in range(3):
        run(ph.tensor(data, device=device)).item()
    with ph.profile() as found:
        for number in range(2):
            with record_function(f"step {number}"):
                run(ph.tensor(data, device=device)).item()
    return found, step.__code__.co_firstlineno + 2


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_launches_belong_to_ops_modules_and_lines(device: Device, captured: bool) -> None:
    """By a model of two linear layers: each has one product forward and one for the gradient of its weight."""
    found, line = _profiled(device, captured)
    assert [(r.name, r.end >= r.begin) for r in found.records.ranges] == [("step 0", True), ("step 1", True)]
    assert {name: (row.calls, row.nbytes) for name, row in found.copies.items()} == {
        "upload": (2, 2 * 4 * 8 * 4),
        "read": (2, 2 * 4),
    }
    if not isinstance(device.backend, SupportsLaunchResources):
        assert captured or found.ops["linear"].calls == 4
        return
    products = [x for x in found.launches if x.op == "linear" and x.flops]
    assert [x.flops for x in products] == 2 * [2 * 4 * 8 * 16, 2 * 4 * 16 * 4]
    assert [x.location.module for x in products] == 2 * ["0", "2"]
    assert {(x.location.file, x.location.line) for x in products} == {(__file__, line)}
    assert all(x.call is not None and x.end >= x.begin for x in found.launches if x.op)
    assert all(found.records.begin <= x.begin <= x.end <= found.records.end for x in found.launches)
    assert found.ops["linear"].flops == sum(x.flops for x in products)
    assert found.busy <= sum(x.end - x.begin for x in found.launches)


def test_ops_of_captured_steps_have_modules_and_lines_without_timestamps() -> None:
    found, line = _profiled(Device("numpy"), True)
    assert found.modules["0"].total > 0
    assert found.modules["1"].total > 0
    assert (__file__, line) in found.lines
    assert "module" in [row.split()[0] for row in found.table().splitlines() if row]


def test_a_long_line_of_the_program_keeps_its_place_in_the_table() -> None:
    with ph.profile("numpy") as found:
        ones, total = ph.ones((3, 4), device="numpy"), ph.ones((3, 4), device="numpy").sum()
    assert ones.shape == (3, 4)
    assert total.item() == 12
    assert re.search(rf"^{Path(__file__).name}:\d+: .*…  +\d", found.table(), re.MULTILINE)


def test_a_profile_is_written_as_text_trace_and_page(device: Device, tmp_path: Path) -> None:
    """A trace has one arrow for each call with launches, and a page holds names as data that cannot end its script."""
    with ph.profile(device) as found, record_function("</script><b>&"):
        (ph.ones((3, 4), device=device) @ ph.ones((4, 5), device=device)).sum().item()
    assert max(map(len, found.table().splitlines())) <= 80
    found.save_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    starts, ends = ([e["id"] for e in events if e["ph"] == phase] for phase in "sf")
    assert len(starts) == len(set(starts)) == sum(1 for c in found.records.calls if c.launches)
    assert set(ends) == set(starts)
    assert len([e for e in events if e.get("cat") == "kernel"]) == len(found.launches)
    found.save_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    data = page.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert "</script><b>&" in json.loads(data)["texts"]
    assert not re.search(r"(src|href)=|https?://(?!www\.w3\.org/2000/svg)", page)


def test_a_profile_within_a_profile_and_one_that_fails(device: Device) -> None:
    x = ph.ones((3,), device=device)
    with ph.profile(device) as outer:
        x.exp()
        with pytest.raises(ZeroDivisionError), ph.profile(device) as inner:
            1 / (0 * x.log().ndim)
        x.sin()
    assert sorted(inner.ops) == ["log"]
    assert sorted(outer.ops) == ["exp", "log", "sin"]
    first, second, before = ph.profile(device), ph.profile(device), dispatch.thread.executor
    first.__enter__()
    second.__enter__()
    first.__exit__()
    x.cos()
    second.__exit__()
    assert (sorted(first.ops), sorted(second.ops)) == ([], ["cos"])
    assert (dispatch.thread.executor, dispatch.thread.timer) == (before, None)
    with pytest.raises(PolyhalError, match="this profile has run already"), outer:
        pass
    with pytest.raises(PolyhalError, match="the profile has not ended"), ph.profile(device) as running:
        _ = running.ops


def test_a_range_that_began_before_the_profile_is_cut(device: Device) -> None:
    found = ph.profile()
    with record_function("before"):
        found.__enter__()
        ph.ones((3,), device=device)
    found.__exit__(None, None, None)
    assert [r.begin for r in found.records.ranges] == [found.records.begin]


def test_launches_of_other_threads_count_for_no_call(device: Device) -> None:
    """A second thread computes sines while this one computes exponentials, with switches within most calls."""
    x = ph.ones((3,), device=device)
    x.sin().exp()
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            x.sin()
            time.sleep(0)

    other = threading.Thread(target=compute)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ph.profile(device) as found:
            other.start()
            for _ in range(100):
                x.exp()
            stop.set()
            other.join()
    finally:
        sys.setswitchinterval(interval)
    assert {name: row.calls for name, row in found.ops.items()} == {"exp": 100}
    if not isinstance(device.backend, SupportsLaunchResources):
        return
    assert [len(call.launches) for call in found.records.calls] == [1] * 100
    assert len({launch.kernel for launch in found.launches if launch.call is not None}) == 1
    assert any(launch.call is None for launch in found.launches)
