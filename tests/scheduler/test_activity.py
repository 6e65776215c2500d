"""Activity of devices in runs of a captured step, compared with the arithmetic of the step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import polyhal as ph
from polyhal.parallel import Group


@pytest.mark.parametrize("names", [["numpy", "numpy:no_f64"], ["sim:teaching*2:0", "sim:teaching*2:1"]])
def test_activity_has_traffic_collectives_and_times_of_devices(names: list[str], tmp_path: Path) -> None:
    group = Group(names)
    a, b = group.devices

    def step(x: ph.Tensor, y: ph.Tensor) -> tuple[ph.Tensor, ...]:
        u, v = group.all_reduce([x @ x, y @ y])
        return u.exp(), v.to(a) + u

    captured = ph.jit(step, warm_up=False)
    xs = [ph.ones((32, 32), device=d) for d in (a, b)]
    for _ in range(3):
        expected = [x.numpy() for x in captured(*xs)]
    with captured.activity() as seen:
        for _ in range(4):
            found = [x.numpy() for x in captured(*xs)]
    assert all((x == y).all() for x, y in zip(found, expected, strict=True))
    facts = seen.to_json()
    assert facts["runs"] == 3, "and a profiled one"
    n = 32 * 32 * 4
    assert {(x["from"], x["to"]): x["bytes"] for x in facts["links"]} == {(a.name, b.name): n, (b.name, a.name): 2 * n}
    (collective,) = facts["collectives"]
    assert (collective["kind"], collective["bytes"], collective["count"]) == ("all_reduce", n, 1)
    assert collective["bus_bandwidth"] == pytest.approx(n / collective["seconds"])
    for device in facts["devices"]:
        assert device["clock"] == ("simulated" if names[0].startswith("sim") else "host")
        assert device["families"]["contraction"] == 1
        assert device["family_seconds"].keys() == device["families"].keys()
        assert min(device["family_seconds"].values()) > 0
        assert sum(device["module_seconds"].values()) == pytest.approx(sum(device["family_seconds"].values()))
        assert 0 < device["computing"] <= device["elapsed"]
        assert device["idle"] == pytest.approx(device["elapsed"] - device["computing"])
        if device["clock"] == "simulated":
            # 2 us to launch, and three matrices at 64 GB/s
            assert device["family_seconds"]["contraction"] == pytest.approx(2e-6 + 3 * n / 64e9, rel=1e-3)
            assert sum(device["family_seconds"].values()) == pytest.approx(device["computing"])
    assert f"{a.name} " in str(seen)
    assert "most ms" in str(seen)
    assert "all_reduce" in str(seen)
    seen.save_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {e["tid"] for e in events} >= {a.name, b.name, "collectives"}
    assert all(e["dur"] >= 0 for e in events)


def test_one_run_reports_ops_without_times() -> None:
    first, second = ph.Device("numpy"), ph.Device("numpy:no_f64")
    step = ph.jit(lambda x: (x @ x).to(second) + 1, warm_up=False)
    x = ph.ones((4, 4), device=first)
    step(x)
    with step.activity() as seen:
        step(x)
    assert [d["family_seconds"] for d in seen.to_json()["devices"]] == [{}, {}]
    assert "most ops" in str(seen)


def test_a_step_on_one_device_has_no_activity() -> None:
    step = ph.jit(lambda x: x + 1, warm_up=False)
    with step.activity() as seen:
        assert step(ph.ones((2,), device="numpy")).tolist() == [2.0, 2.0]
    assert str(seen) == "no captured step ran on several devices"
