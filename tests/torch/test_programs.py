"""Ordinary programs train to the same losses on the device, and without the CPU."""

from __future__ import annotations

import importlib

import pytest

import polyhal.torch
from tests.torch.programs.data import NAMES


@pytest.mark.slow  # some need scikit-learn's data
@pytest.mark.parametrize("name", NAMES)
def test_a_program_trains_to_the_losses_of_the_cpu(
    torch_on_numpy: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    program = importlib.import_module(f"tests.torch.programs.{name}")
    expected = program.losses("cpu", 4)
    assert program.losses(torch_on_numpy, 4) == pytest.approx(expected, rel=1e-4)
    assert not polyhal.torch.report().on_cpu
