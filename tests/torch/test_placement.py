"""A sample of PyTorch's databases of layers and optimizers on the device, and the committed figures of whole replays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pytorch.modules import module_database
from tests.pytorch.optimizers import SENSELESS, optimizer_database
from tests.torch import modules, optimizers
from tests.torch.database.states import Outcome
from tests.torch.placement import LEAST_SHARE, Case, Figures, figures_of, load, record, section


def _assert_on_device(cases: list[Case]) -> None:
    bad = [c for c in cases if c.outcome is not None and c.outcome.state != "device"]
    assert not bad, "\n".join(f"{c.name}{c.text}: {c.outcome}" for c in bad)


def test_layers_agree_and_run_on_the_device(torch_on_numpy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One case of every second one in training and in evaluation."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    cases = [c for e in module_database()[::2] for c in modules.replay(e, limit=1)]
    _assert_on_device(cases)
    assert len({c.name for c in cases if c.outcome is not None}) > 50


def test_every_optimizer_takes_the_steps_of_the_cpu(torch_on_numpy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cases of each; among all of them are implementations, groups and state dicts exchanged in both directions."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    cases = [c for e in optimizer_database() for c in optimizers.replay(e, limit=3)]
    _assert_on_device(cases)
    assert {c.name for c in cases if c.outcome is not None} == {e.name for e in optimizer_database()} - set(SENSELESS)


def test_enough_cases_of_the_committed_figures_agree() -> None:
    rows = load()
    assert {f.database for f in rows} == {"modules", "optimizers"}
    assert all(f.share >= LEAST_SHARE and f.total > 500 for f in rows)


def test_figures_count_by_state_and_replace_older_ones(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    cases = [
        Case("A", "()", Outcome("device")),
        Case("A", "(1)", Outcome("cpu", ("mm",))),
        Case("B", "()", Outcome("differs", (), "shape")),
        Case("C", "()", None),
    ]
    figures = figures_of("modules", "numpy", cases)
    assert figures.states == {"device": 1, "cpu": 1, "differs": 1}
    assert figures.elsewhere == {"A": ["mm"], "B": ["differs"]}
    assert figures.share == pytest.approx(200 / 3)
    record(Figures("modules", "1", "numpy", {"device": 9}), path)
    record(figures, path)
    assert load(path) == [figures]
    assert "| modules | numpy | 3 | 66.67 | 1 | 0 | 1 | 0 | 1 |" in section(load(path))
