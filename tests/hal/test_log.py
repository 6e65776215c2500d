"""Logging: topics, the variable that prints them, and the events of a program."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import polyhal
from polyhal import Device
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.log import TOPICS, logger
from polyhal.hal.errors import SettingError

PROGRAM = """
import polyhal as ph
step = ph.jit(lambda x: (x * 2.0).sum())
for _ in range(3):
    step(ph.ones((2, 3), device="numpy"))
"""


def _printed(tmp_path: Path, topics: str) -> str:
    """Run the program with POLYHAL_LOG, and return its standard error."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-P", str(tmp_path / "program.py")]
    settings = {"POLYHAL_LOG": topics, "POLYHAL_DEVICE": "numpy", "POLYHAL_DISABLE": "opencl,wgpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | settings, check=True, timeout=120)
    return done.stderr


def test_topics_are_printed_on_request(tmp_path: Path) -> None:
    printed = _printed(tmp_path, "capture, memory")
    events = [line.partition("polyhal.")[2] for line in printed.splitlines() if "polyhal." in line]
    captured = [e.partition("<lambda>: ")[2] for e in events if e.startswith("capture")]
    assert captured == [
        "warmed up by a call that ran op by op",
        "recorded a step of 2 nodes",
        "confirmed; such calls replay the step",
    ]
    assert any(e.startswith("memory: numpy: block of 256 bytes; 256 bytes reserved") for e in events)
    assert not any(e.startswith(("kernels", "passes", "discovery")) for e in events)


def test_an_unknown_topic_is_a_warning_that_lists_the_known_ones(tmp_path: Path) -> None:
    printed = _printed(tmp_path, "kernel")
    assert f"POLYHAL_LOG is 'kernel'; expected {', '.join(TOPICS)}, separated by commas, or all" in printed


def test_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_LOG", "all")
    assert env.log(tuple(TOPICS)) == tuple(TOPICS)
    monkeypatch.setenv("POLYHAL_LOG", "memory,all,none")
    with pytest.raises(SettingError, match="expected discovery"):
        env.log(tuple(TOPICS))


def test_a_program_receives_messages_through_logging(caplog: pytest.LogCaptureFixture, device: Device) -> None:
    with caplog.at_level(logging.DEBUG, logger="polyhal"):
        x = polyhal.ones((5, 7), device=device)
        device.planner.forget()
        device.plans.clear()
        x.sum(0)
    messages = [r.getMessage() for r in caplog.records if r.name == "polyhal.dispatch"]
    assert any(m.startswith(f"{device.name}: sum(float32[5, 7]): ") for m in messages), messages


@pytest.mark.parametrize("topic", TOPICS)
def test_each_topic_has_a_logger(topic: str) -> None:
    assert logger(topic) is logging.getLogger(f"polyhal.{topic}")


def test_the_page_lists_the_topics_with_their_events() -> None:
    page = Path(__file__).parents[2] / "docs" / "debugging.md"
    table = page.read_text(encoding="utf-8").partition("| topic | events |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = dict(line.strip("| ").split(" | ") for line in table.splitlines())
    assert rows == TOPICS


def test_evictions_are_events_of_capture(caplog: pytest.LogCaptureFixture) -> None:
    doubled = polyhal.jit(lambda x: x * 2.0, max_graphs=1)
    caplog.set_level("INFO", logger="polyhal.capture")
    for _ in range(2):  # the first call warms up
        doubled(polyhal.ones(2, device="numpy"))
    with pytest.warns(UserWarning, match="more than 1 signatures"):
        doubled(polyhal.ones(3, device="numpy"))
    assert sum("evicted the steps of the least recently used signature" in m for m in caplog.messages) == 1
