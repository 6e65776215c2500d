"""A sample of PyTorch's databases, replayed: `python -m tests.pytorch` replays them whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from polyhal import Device
from tests.pytorch import optimizers
from tests.pytorch.database import op_database
from tests.pytorch.ops import replay
from tests.pytorch.outcome import Outcome
from tests.pytorch.results import Row, is_enough, load, record, rows_of, table

_EVERY = 4
"""The database has some 700 entries; its import takes half a minute, so that all of this is one test."""


def _assert_fine(outcomes: Sequence[Outcome]) -> None:
    bad = [o for o in outcomes if not o.is_fine and o.verdict != "missing"]
    assert not bad, "\n".join(f"{o.name}({o.call}): {o.verdict}, {o.detail}" for o in bad)


def test_a_sample_of_all_ops_agrees_with_pytorch() -> None:
    device = Device("numpy")
    outcomes = [o for e in op_database()[::_EVERY] for o in replay(e, torch.float32, device, limit=1)]
    _assert_fine(outcomes)
    assert len({o.name for o in outcomes if o.verdict == "agrees"}) > 100


def test_every_optimizer_takes_pytorchs_steps(device: Device) -> None:
    """Two or three cases of each; among all of them are flags, groups and state dicts exchanged in both directions."""
    entries = optimizers.optimizer_database()
    outcomes = [o for e in entries for o in optimizers.replay(e, torch.float32, device, limit=2)]
    _assert_fine(outcomes)
    assert {o.name for o in outcomes if o.verdict == "agrees"} == {e.name for e in entries} - {"SparseAdam"}


def test_state_of_optimizers_is_exchanged_with_pytorch() -> None:
    device = Device("numpy")
    for entry in optimizers.optimizer_database():
        if entry.name in ("Adam", "ASGD", "LBFGS", "Muon", "NAdam"):
            for direction in ("from", "to"):
                case = optimizers.Case({"lr": 0.02}, exchange=direction)
                assert not optimizers.Replay(entry, case, torch.float32, device).difference(), (entry.name, direction)


def test_figures_are_counted_by_dtype_and_replace_older_ones(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    agrees, differs = Outcome("add", "float32", "agrees"), Outcome("add", "float32", "differs")
    rows = rows_of("ops", "numpy", None, [agrees, differs, Outcome("mul", "int64", "missing")])
    record(rows, path)
    assert [(r.dtype, r.agrees, r.sensible, r.share) for r in load(path)] == [
        ("float32", 1, 2, 50.0),
        ("int64", 0, 1, 0.0),
    ]
    assert not is_enough(load(path))
    record(rows_of("ops", "numpy", 3, [agrees] * 199 + [differs]), path)
    first, second = load(path)
    assert first == Row("ops", "numpy", "float32", 3, 199, 1, 0, 0, 0, {"add": 1})
    assert is_enough([first])
    assert second.entries == {"mul": 1}
    assert "| ops | numpy | float32 | 199 | 200 | 99.50 | 0 | 0 | at most 3 |" in table([first])


def test_the_committed_figures_are_good_enough() -> None:
    assert load()
    assert is_enough(load()), table(load())
