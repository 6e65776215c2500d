"""Criteria of agreement for cases of libraries, and the page of the committed figures. `python -m tests.torch.libraries`
runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.torch.libraries.cases import CASES, Case, Given, trained_case
from tests.torch.libraries.comparison import compare
from tests.torch.libraries.page import PAGE, load, page, record


@pytest.fixture
def model_case(monkeypatch: pytest.MonkeyPatch) -> Case:
    """A model whose head begins with zeros."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")

    def make() -> tuple[nn.Module, dict[str, torch.Tensor]]:
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        nn.init.zeros_(model[2].weight)
        return model, {"input": torch.randn(5, 4)}

    known = len(CASES)
    trained_case("none", "layers", make)
    (found,) = CASES[known:]
    del CASES[known:]
    return found


def test_a_case_agrees(torch_device: str, model_case: Case) -> None:
    result = compare(model_case, "1")
    assert (result.state, result.detail, result.on_cpu, result.native) == ("agrees", "", {}, 1.0)
    assert result.calls >= 6
    given = model_case.run(torch_device)
    assert all(g.any() for g in given.gradients.values())


def test_cases_that_do_not_agree(torch_device: str, model_case: Case) -> None:
    def larger(device: str) -> Given:
        given = model_case.run(device)
        return Given([x * (1 if device == "cpu" else 1.01) for x in given.outputs], given.gradients)

    def without_gradients(device: str) -> Given:
        given = model_case.run(device)
        return Given(given.outputs, given.gradients if device == "cpu" else {})

    def fail(device: str) -> Given:
        raise ValueError(device)

    assert compare(Case("none", "far", larger), "1").state == "differs"
    assert compare(Case("none", "far", larger, model_case.exact), "1").state == "differs"
    assert compare(Case("none", "less", without_gradients), "1").detail == "gradients of 0 parameters instead of 4"
    assert compare(Case("none", "cpu", lambda device: model_case.run("cpu")), "1").detail == "nothing ran on the device"
    assert compare(Case("none", "none", fail), "1").detail == "ValueError: cpu"


def test_the_page_is_what_its_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load()), "run python -m tests.torch.libraries page"


def test_figures_take_the_place_of_those_of_the_same_case(tmp_path: Path) -> None:
    path, results = tmp_path / "results.json", load()[1]
    record(results[:3], path)
    record([results[1]], path)
    assert load(path) == (torch.__version__, sorted(results[:3], key=lambda r: (r.library, r.name)))
    assert {r.state for r in results} == {"agrees"}
