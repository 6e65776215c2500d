"""Criteria of agreement for programs of libraries, and the page of the committed figures. `python -m tests.torch.libraries`
runs them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.torch.libraries import programs
from tests.torch.libraries.cases import CASES, MODES, Case, Made, computed_case, trained_case, whole_case
from tests.torch.libraries.measurement import RUNS, Result, measure
from tests.torch.libraries.page import PAGE, load, page, record
from tests.torch.libraries.processes import run_files

Declared = Callable[..., Case]


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Declared]:
    """A function that declares a case and returns it; declarations are undone."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    known = len(CASES)

    def declare(kind: Callable[..., None], *args: Any, **kwargs: Any) -> Case:
        kind("none", "layers", *args, **kwargs)
        return CASES[-1]

    yield declare
    del CASES[known:]


def _made() -> Made:
    """Return a model whose head begins with zeros."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    nn.init.zeros_(model[2].weight)
    return model, {"input": torch.randn(5, 4)}


def _modes(case: Case, place: str, **options: Any) -> list[Result]:
    results = list(measure(case, "1", place=place, **options))
    assert [r.mode for r in results] == list(case.modes)
    return results


def test_training_steps_agree_in_each_mode(torch_device: str, declared: Declared) -> None:
    eager, recorded, compiled = _modes(declared(trained_case, _made), torch_device)
    for result in (eager, recorded, compiled):
        assert (result.state, result.detail, result.on_cpu, result.native) == ("agrees", "", {}, 1.0)
    assert eager.calls >= 6
    assert not eager.graphs
    assert recorded.graphs == 1
    assert compiled.graphs == 1


def test_results_are_copies(declared: Declared) -> None:
    program = declared(trained_case, _made).build("cpu", torch.float32, "eager")
    before = program.state()
    program.step()
    assert all(not torch.equal(before[n], x) for n, x in program.state().items())


def test_a_training_step_moves_each_parameter(torch_device: str, declared: Declared) -> None:
    program = declared(trained_case, _made).build(torch_device, torch.float32, "eager")
    before = program.state()
    program.step()
    assert all(g.any() for g in program.gradients().values())
    assert all(not torch.equal(before[n], x) for n, x in program.state().items())


def test_programs_without_gradients_agree_in_each_mode(torch_device: str, declared: Declared) -> None:
    case = declared(computed_case, _made, lambda model, inputs: model(inputs["input"]).argmax(1))
    assert [r.state for r in _modes(case, torch_device)] == ["agrees"] * 3


def test_a_recorded_step_that_runs_eagerly_has_a_reason(torch_device: str, declared: Declared) -> None:
    calls: list[int] = []

    def counted(model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        calls.append(len(calls))
        return model(**inputs)

    case = declared(trained_case, _made, counted, modes=("recorded",))
    (result,) = _modes(case, torch_device)
    assert result.state == "runs eagerly"
    assert result.detail == "calls had 7 items and has 8 after the call"


def test_whole_programs_agree(torch_device: str, declared: Declared) -> None:
    def run(device: str, mode: str) -> torch.Tensor:
        return torch.arange(4.0, device=device).cumsum(0)

    (result,) = _modes(declared(whole_case, run), torch_device)
    assert result.state == "agrees"
    assert result.calls


def test_the_speed_is_relative_to_the_cpu(
    torch_device: str, declared: Declared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.torch.libraries.measurement._SECONDS", 0.0)
    (result,) = _modes(declared(computed_case, _made, modes=("eager",)), torch_device, is_timed=True)
    assert result.speed is not None
    assert 0 < result.speed < 1e3


def test_programs_that_do_not_agree(torch_device: str, declared: Declared) -> None:
    def state(call: Callable[..., Any], **options: Any) -> tuple[str, str]:
        (result,) = _modes(declared(trained_case, _made, call, modes=("eager",), **options), torch_device)
        return result.state, result.detail

    def larger(model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        x = inputs["input"]
        return model(x) * (1 if x.device.type == "cpu" else 1.01)

    def of_other_shapes(model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        x = inputs["input"]
        return model(x if x.device.type == "cpu" else x[1:])

    def without_gradients(model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        x = inputs["input"]
        return model(x) if x.device.type == "cpu" else model[2](torch.ones(5, 3, device=x.device))

    def fail(model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        if inputs["input"].device.type == "cpu":
            return model(**inputs)
        raise ValueError("only on the CPU")

    assert state(larger) == state(larger, is_exact_in_float64=False) == ("differs", "")
    assert state(of_other_shapes) == ("differs", "outputs of other shapes")
    assert state(without_gradients) == ("differs", "gradients of 2 parameters instead of 4")
    assert state(fail) == ("fails", "ValueError: only on the CPU")
    (on_cpu,) = _modes(declared(computed_case, _made, modes=("eager",)), "cpu")
    assert (on_cpu.state, on_cpu.detail) == ("differs", "nothing ran on the device")


def test_programs_of_a_library_that_is_installed_agree_in_each_mode(
    torch_on_numpy: str, declared: Declared, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = len(CASES)
    name = f"{programs.__name__}.einops_layers"
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module(name)
    assert len(CASES) == known + 2
    for case in CASES[known:]:
        assert [(r.state, r.detail, r.on_cpu) for r in _modes(case, torch_on_numpy)] == [("agrees", "", {})] * 3


def test_each_case_of_a_file_runs_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.torch.libraries.processes._prepare", lambda: None)
    monkeypatch.setattr("tests.torch.libraries.processes.measure", _ends_the_process_in_its_second_mode)
    chosen = run_files(["torch_layers"], lambda case: case.name in ("GRU", "transformer"), MODES, "numpy", False)
    states = [(r.name, r.mode, r.state) for r in chosen]
    for name in ("GRU", "transformer"):
        assert [s for s in states if s[0] == name] == [
            (name, "eager", "agrees"),
            (name, "recorded", "fails"),
            (name, "compiled", "fails"),
        ]


def _ends_the_process_in_its_second_mode(case: Case, version: str, is_timed: bool) -> Iterator[Result]:
    yield Result(case.library, version, case.name, "numpy", "eager", "agrees")
    os._exit(1)


def test_the_page_is_what_its_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load()), "run python -m tests.torch.libraries page"


def test_figures_take_the_place_of_those_of_the_same_program(tmp_path: Path) -> None:
    path, results = tmp_path / "results.json", load()
    record(results[:3], path)
    record([results[1]], path)
    assert load(path) == results[:3]


def test_most_programs_of_libraries_run_and_agree_in_each_mode() -> None:
    results = load()
    for mode, least in zip(MODES, (0.97, 0.9, 0.9), strict=True):
        states = [r.state for r in results if r.mode == mode]
        assert sum(s in RUNS for s in states) >= least * len(states)
