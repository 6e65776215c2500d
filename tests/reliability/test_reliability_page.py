"""The committed page is made of the committed result, and the result counts everything that it should, without findings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.reliability.campaigns import CAMPAIGNS
from benchmarks.reliability.fuzzing.registry_names import NAMES
from benchmarks.reliability.page import PAGE, RESULT, page
from polyhal.backends.sim.faults import FaultKind

LEAST = {
    "faults": {"injected": 1_500, "recovered": 900, "detected": 80},
    "drivers": {"provoked": 200, "recovered": 200},
    "kills": {"kills": 200, "resumed": 10},
    "files": {"inputs": 100_000, "guided": 1},
    "load": {"launches": 1_000_000, "live_tensors": 10_000, "threads": 8, "exits": 40, "forks": 40},
    "soak": {"minutes": 30, "steps": 10_000, "repeated": 500},
    "pool": {"steps": 24},
    "oclgrind": {"cases": 1_500, "ops": 300},
}


@pytest.fixture(scope="module")
def campaigns() -> dict[str, dict[str, Any]]:
    return dict(json.loads(RESULT.read_text(encoding="utf-8"))["campaigns"])


def test_the_page_is_what_the_result_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(json.loads(RESULT.read_text(encoding="utf-8")))


def test_every_campaign_ran_at_full_length_and_found_nothing(campaigns: dict[str, dict[str, Any]]) -> None:
    assert list(campaigns) == list(CAMPAIGNS) == list(LEAST)
    for name, counts in campaigns.items():
        assert counts["findings"] == [], name
        assert counts.get("leaks", 0) == 0, name
        for key, least in LEAST[name].items():
            assert counts[key] >= least, f"{name}: {key}"


def test_what_the_campaigns_went_through(campaigns: dict[str, dict[str, Any]]) -> None:
    faults = campaigns["faults"]
    assert set(faults["outcomes"]) == {str(kind) for kind in FaultKind}
    for name, row in faults["trainings"].items():
        assert row["hit"] == row["points"] if name.startswith("mlp") else row["hit"] > 80, name
    assert set(campaigns["files"]["outcomes"]) == set(NAMES)
    assert {"checkpoint file", "program cache", "tuning", "training"} <= set(campaigns["kills"]["by_target"])
    assert {n.partition(":")[0] for n in campaigns["load"]["by_device"]} >= {"numpy", "opencl", "sim", "wgpu"}
    assert campaigns["pool"]["worst_percent"] < 5
    assert campaigns["oclgrind"]["reports"] == 0
