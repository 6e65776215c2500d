"""Metrics in files of JSON lines and for TensorBoard, as curves, and progress in a pipe and a notebook."""

from __future__ import annotations

import json
import math
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.errors import MissingPackageError
from polyhal.utils.curves import Curves
from polyhal.utils.metrics import JsonLines, MetricsSink, TensorBoard
from polyhal.utils.progress import progress


def run(sinks: list[MetricsSink]) -> None:
    """Log three steps of a run, the last with a validation loss."""
    for step in range(3):
        for sink in sinks:
            sink.log(step, {"loss": 1.0 / (step + 1), "val_loss": 0.5 if step == 2 else None})
    for sink in sinks:
        sink.close()


def test_all_sinks_have_one_interface(tmp_path: Path) -> None:
    curves = Curves()
    run([JsonLines(tmp_path / "metrics.jsonl"), curves])
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[0] == {"step": 0, "loss": 1.0, "val_loss": None}
    assert rows[2] == {"step": 2, "loss": 1 / 3, "val_loss": 0.5}
    assert curves.points == {"loss": [(0, 1.0), (1, 0.5), (2, 1 / 3)], "val_loss": [(2, 0.5)]}


def test_a_loss_may_be_a_tensor(tmp_path: Path) -> None:
    with JsonLines(tmp_path / "metrics.jsonl") as sink:
        sink.log(1, {"loss": ph.tensor(0.5, device="numpy")})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "loss": 0.5}


def test_numbers_that_json_lacks_are_strings_in_a_folder_that_was_missing(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "first" / "metrics.jsonl"
    with JsonLines(path) as sink:
        sink.log(1, {"loss": math.nan, "best": -math.inf, "lr": np.float32(0.5), "norm": ph.tensor(math.inf)})

    def refused(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    row = json.loads(path.read_text(), parse_constant=refused)
    assert row == {"step": 1, "loss": "NaN", "best": "-Infinity", "lr": 0.5, "norm": "Infinity"}
    assert math.isnan(float(row["loss"]))


def test_events_are_those_that_tensorboard_reads(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run([TensorBoard(tmp_path)])
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    values = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert values == {"loss": [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))], "val_loss": [(2, 0.5)]}


def test_without_tensorboard_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(
        MissingPackageError, match=r'need the package tensorboard.*pip install "polyhal\[tensorboard\]"'
    ):
        TensorBoard(tmp_path)


def test_curves_as_text_page_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    curves = Curves()
    for step in range(200):
        curves.log(step, {"a<b": math.exp(-step / 50), "bad": math.nan})
    assert list(curves.points) == ["a<b"]
    line = str(curves)
    assert "\n" not in line
    assert line.count("█") + line.count("▇") >= 1
    assert line.endswith(f"1 → {math.exp(-199 / 50):.4g}, least {math.exp(-199 / 50):.4g} at step 199")
    page = curves._repr_html_()
    assert "a&lt;b" in page
    assert page.count("<svg") == page.count("</svg>") == 1
    curves.save(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingPackageError, match="need matplotlib"):
        curves.save(tmp_path / "other.png")
    assert not (tmp_path / "other.png").exists()


def test_progress_in_a_pipe_is_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 3))
    monkeypatch.setattr("polyhal.utils.progress.time.monotonic", lambda: next(now))
    assert list(progress(range(4), "epoch")) == [0, 1, 2, 3]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("epoch 4/4, ")
    assert 1 < len(err.splitlines()) <= 5
    list(progress(iter("ab")))
    assert capsys.readouterr().err.startswith("2, ")


def test_progress_in_a_notebook_is_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """IPython's functions are replaced by a display that keeps its updates."""
    shown: list[str] = []

    class Handle:
        def update(self, html: str) -> None:
            shown.append(html)

    def display(html: str, display_id: bool) -> Handle:
        shown.append(html)
        return Handle()

    shell: Any = types.SimpleNamespace(kernel=object())
    package, parts = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    vars(package).update(get_ipython=lambda: shell)
    vars(parts).update(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", parts)
    list(progress([1, 2], "a<b"))
    assert shown[0] == "<progress max='2' value='0'></progress> a&lt;b 0/2"
    assert shown[-1].startswith("<progress max='2' value='2'></progress> a&lt;b 2/2, ")
    assert capsys.readouterr() == ("", "")
