"""`polyhal train --devices`: one model on several devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyhal.hal.system.discovery.registry import registry
from polyhal.serialize import load

from .conftest import TINY, Command

pytestmark = pytest.mark.slow

PAIR = "numpy,numpy:no_f64"
_ALONE: list[np.ndarray] = []
OPTIONS = [*TINY, "--steps", 12, "--eval-every", 6, "--log-every", 3, "--accumulate", 2]


def losses(folder: Path) -> np.ndarray:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return np.array([[r["loss"], r["val_loss"] or 0.0] for r in rows])


def same(a: Any, b: Any) -> bool:
    """Return whether nested states are bit-identical."""
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return np.array_equal(a.numpy(), b.numpy()) if hasattr(a, "numpy") else bool(a == b)


@pytest.fixture
def alone(polyhal: Command, text: Path, tmp_path: Path) -> np.ndarray:
    """Return the losses of the run on one device."""
    if not _ALONE:
        assert polyhal("train", text, *OPTIONS, "--device", "numpy", "--save-dir", "alone").code == 0
        _ALONE.append(losses(tmp_path / "alone"))
    return _ALONE[0]


def test_several_devices_train_like_one(polyhal: Command, text: Path, tmp_path: Path, alone: np.ndarray) -> None:
    outcome = polyhal(
        "train", text, *OPTIONS, "--devices", PAIR, "--save-dir", "pair", "--sample-every", 6, "--placement"
    )
    assert outcome.code == 0, outcome.err
    np.testing.assert_allclose(losses(tmp_path / "pair"), alone, rtol=1e-5)
    assert (
        f"devices: numpy (NumPy on x86_64), numpy:no_f64 (NumPy on x86_64), chosen by --devices {PAIR}" in outcome.out
    )
    assert "shares: of the 4 windows in a batch, numpy 2, numpy:no_f64 2" in outcome.out
    assert "sample at step 6" in outcome.out
    assert "activity of the devices: 5 runs" in outcome.out
    assert "reduce_scatter" in outcome.out
    assert "polyhal generate pair --prompt" in outcome.out
    assert outcome.out.rstrip().endswith("--device numpy")
    text_of = polyhal("generate", "pair", "--device", "numpy", "--max-tokens", 5, "--temperature", 0)
    assert text_of.code == 0, text_of.err


@pytest.mark.parametrize("then", [["--devices", PAIR], ["--device", "numpy"], ["--devices", "numpy,sim:h200*2"]])
def test_a_run_can_be_resumed_on_other_devices(
    polyhal: Command, text: Path, tmp_path: Path, alone: np.ndarray, then: list[str]
) -> None:
    """Bit-identically on the same devices."""
    first = polyhal("train", text, *OPTIONS, "--devices", PAIR, "--save-dir", "parts", "--stop-after", 7)
    assert f"resume with: polyhal train --resume --save-dir parts --devices {PAIR}" in first.out
    outcome = polyhal("train", "--resume", "--save-dir", "parts", *then)
    assert outcome.code == 0, outcome.err
    np.testing.assert_allclose(losses(tmp_path / "parts"), alone, rtol=1e-5)
    if then[1] == PAIR:
        polyhal("train", text, *OPTIONS, "--devices", PAIR, "--save-dir", "whole")
        parts, whole = (load(tmp_path / name / "last", "numpy") for name in ("parts", "whole"))
        assert same(parts, whole)


def test_a_configuration_file_names_devices(polyhal: Command, text: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('devices = ["numpy", "numpy:no_f64"]\nsteps = 2\n')
    assert "shares: " in polyhal("train", text, *TINY, "--config", "run.toml").out
    assert "shares: " not in polyhal("train", text, *TINY, "--config", "run.toml", "--device", "numpy").out
    (tmp_path / "wrong.toml").write_text("devices = 2\n")
    wrong = polyhal("train", text, *TINY, "--config", "wrong.toml")
    assert (wrong.code, wrong.err) == (2, "error: devices is 2; expected text, or a list of names\n")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--devices", "numpy", "--device", "numpy"], "--device and --devices are both given; expected one of them"),
        (["--devices", "numpy,numpy"], "--devices numpy,numpy: numpy occurs twice"),
        (["--devices", ","], "--devices ,: ',' does not name a device"),
        (["--devices", "numpy,abacus:7"], "abacus"),
        (["--devices", PAIR, "--batch-size", "1"], "--batch-size 1 leaves some of 2 devices without work"),
    ],
)
def test_wrong_devices_are_refused(
    polyhal: Command, text: Path, tmp_path: Path, options: list[str], problem: str
) -> None:
    outcome = polyhal("train", text, *TINY, "--steps", 2, *options)
    assert outcome.code == 2
    assert problem in outcome.err
    assert outcome.err.startswith("error: ")
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(len(registry().probe("opencl")) < 2, reason="there are no two OpenCL devices")
def test_drivers_of_two_vendors_train_together(polyhal: Command, text: Path, tmp_path: Path, alone: np.ndarray) -> None:
    outcome = polyhal("train", text, *OPTIONS, "--devices", "opencl:0,opencl:1", "--save-dir", "mixed")
    assert outcome.code == 0, outcome.err
    np.testing.assert_allclose(losses(tmp_path / "mixed"), alone, rtol=1e-5)
