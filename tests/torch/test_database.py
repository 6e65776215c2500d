"""A sample of PyTorch's database of ops on its device "polyhal": `python -m tests.torch.database` replays it whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import polyhal
from polyhal import Device
from tests.pytorch.database import full_name, op_database
from tests.torch.database import chance
from tests.torch.database.page import PAGE, page
from tests.torch.database.replay import replay
from tests.torch.database.results import load, record
from tests.torch.database.states import STATES, EntryOutcome, Outcome, worst

_EVERY = 13


@pytest.fixture
def numpy_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fallbacks allowed, on the device of the committed figures."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    previous = polyhal.get_default_device()
    polyhal.set_default_device(Device("numpy"))
    yield
    polyhal.set_default_device(previous)


def test_a_sample_runs_where_the_page_says(numpy_device: None) -> None:
    """Each call has at least the committed state of its entry, in all forms."""
    committed = load().entries
    compared = 0
    for entry in op_database()[::_EVERY]:
        found = replay(entry, limit=1)
        if found is None:
            continue
        for form in ("function", "in_place", "out"):
            now, before = getattr(found, form), getattr(committed[full_name(entry)], form)
            if now is not None:
                compared += 1
                assert STATES.index(now.state) <= STATES.index(before.state), (full_name(entry), form, now)
    assert compared > 60


def test_nothing_differs() -> None:
    """Except that PyTorch's decomposition of batch norm returns tensors where its CPU kernel returns empty ones."""
    differing = {name for name, e in load().entries.items() if e.function.state == "differs"}
    assert differing <= {"native_batch_norm", "_native_batch_norm_legit"}


def test_the_page_is_what_its_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load()), "run python -m tests.torch.database page"


def test_the_worst_state_counts_with_its_ops() -> None:
    calls = [Outcome("device"), Outcome("cpu", ("b",)), Outcome("decomposed", ("c",)), Outcome("cpu", ("a",))]
    assert worst(calls) == Outcome("cpu", ("a", "b"))
    assert worst([]) is None


def test_figures_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    first = EntryOutcome("add", "float32", "", Outcome("device"), Outcome("cpu", ("add_",)))
    record([first], {"add.Tensor": "kernel"}, 5, path)
    second = EntryOutcome("mul", "float32", "", Outcome("refused", (), "why"), None, Outcome("device"))
    record([second], {"add.Tensor": "kernel"}, 5, path, whole=False)
    results = load(path)
    assert results.entries == {"add": first, "mul": second}
    assert (results.pytorch, results.samples, results.core) == (torch.__version__, 5, {"add.Tensor": "kernel"})
    text = page(results)
    assert "| function and gradient | 2 | 1 | 0 | 0 | 1 | 0 | 50.0 |" in text
    assert "- `mul`: `why`" in text
    assert "- in place, part on the CPU: `add` (add_)." in text


def test_different_distributions_are_distinguished() -> None:
    def normal(mean: float) -> str:
        return chance.difference("x", lambda: torch.randn(50) + mean, lambda: torch.randn(50))

    torch.manual_seed(0)
    assert normal(0.0) == ""
    assert "apart" in normal(0.5)
    assert "expected" in chance.difference("x", lambda: torch.randn(2), lambda: torch.randn(3))
