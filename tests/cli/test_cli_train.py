"""`polyhal train`: its files, reproducibility, and resuming exactly where a run stopped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyhal.hal.device import Device
from polyhal.hal.system.discovery.registry import registry
from polyhal.serialize import load
from polyhal.training import presets
from polyhal.training.corpus import library
from polyhal.training.options import TrainOptions
from polyhal.training.schedule import share_of_peak

from .conftest import TINY, Command


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run, except those that depend on the clock."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "tokens_per_s"} for line in lines]


def same(a: Any, b: Any) -> bool:
    """Return whether nested states are bit-identical."""
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "numpy"):
        return np.array_equal(a.numpy().view(np.uint8), b.numpy().view(np.uint8))
    return bool(a == b)


def test_a_run_leaves_checkpoints_figures_and_a_picture(polyhal: Command, text: Path, tmp_path: Path) -> None:
    outcome = polyhal("train", text, *TINY, "--steps", 60, "--device", "numpy", "--save-dir", "run", "--lr", 1e-2)
    assert outcome.code == 0, outcome.err
    found = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert set(found) == {"step", "epoch", "loss", "val_loss", "lr", "tokens_per_s"}
    assert found["step"] == 60
    figures = rows(tmp_path / "run")
    assert figures[-1]["val_loss"] < figures[0]["loss"] - 0.5
    assert (tmp_path / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")
    for name in ("best", "last"):
        assert load(tmp_path / "run" / name, "numpy")["extra"]["trainer"]["step"] <= 60
    assert "device: numpy (NumPy" in outcome.out
    assert "chosen by --device numpy" in outcome.out
    assert "polyhal generate run --prompt" in outcome.out


def test_output_to_a_pipe_is_plain_lines(polyhal: Command, text: Path) -> None:
    out = polyhal("train", text, *TINY, "--steps", 4, "--device", "numpy", "--eval-every", 2).out
    assert "\x1b" not in out
    assert "step 2/4  epoch " in out
    assert "tok/s  ETA " in out


def test_runs_are_determined_by_their_seed(polyhal: Command, text: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        polyhal("train", text, *TINY, "--steps", 5, "--device", "numpy", "--save-dir", name, "--seed", seed)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    assert rows(tmp_path / "a") != rows(tmp_path / "c")


@pytest.mark.parametrize(
    ("device", "first", "how"),
    [("numpy", 7, []), ("numpy", 10, ["--eager"]), *([("opencl", 10, [])] if registry().probe("opencl") else [])],
)
def test_a_resumed_run_is_bit_identical(
    polyhal: Command, text: Path, tmp_path: Path, device: str, first: int, how: list[str]
) -> None:
    options = [*how, "--steps", 20, "--dropout", 0.1, "--eval-every", 7, "--log-every", 3, "--accumulate", 2]
    whole = polyhal("train", text, *TINY, *options, "--device", device, "--save-dir", "whole")
    part = polyhal("train", text, *TINY, *options, "--device", device, "--save-dir", "parts", "--stop-after", first)
    assert f"stopped after step {first} of 20" in part.out
    rest = polyhal("train", "--resume", "--save-dir", "parts", "--device", device, *how)
    assert (whole.code, part.code, rest.code) == (0, 0, 0)
    assert rows(tmp_path / "whole") == rows(tmp_path / "parts")
    for name in ("best", "last"):
        assert same(load(tmp_path / "whole" / name, "numpy"), load(tmp_path / "parts" / name, "numpy")), name


def test_a_run_is_resumed_on_the_device_it_was_trained_on(
    polyhal: Command, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default device depends on measurements, so a resumed run could use another one."""
    monkeypatch.delenv("POLYHAL_DEVICE", raising=False)
    try:
        registry().set_default("numpy")
        polyhal("train", text, *TINY, "--steps", 8, "--save-dir", "run", "--stop-after", 4)
        registry().set_default("sim:teaching")
        rest = polyhal("train", "--resume", "--save-dir", "run")
        assert "device: numpy (" in rest.out
        assert rest.code == 0
        named = polyhal("train", "--resume", "--save-dir", "run", "--steps", 9, "--device", "sim:teaching")
        assert "device: sim (" in named.out
    finally:
        registry().set_default(None)


def test_figures_after_the_last_checkpoint_are_not_repeated(polyhal: Command, text: Path, tmp_path: Path) -> None:
    polyhal("train", text, *TINY, "--steps", 8, "--device", "numpy", "--save-dir", "run", "--stop-after", 4)
    path = tmp_path / "run" / "metrics.jsonl"
    lost = json.loads(path.read_text().splitlines()[-1]) | {"step": 6}
    path.write_text(path.read_text() + json.dumps(lost) + "\n" + '{"step": 7, "unfinis')
    assert polyhal("train", "--resume", "--save-dir", "run", "--device", "numpy").code == 0
    assert [r["step"] for r in rows(tmp_path / "run")] == sorted({r["step"] for r in rows(tmp_path / "run")})


def test_a_finished_run_can_be_made_longer(polyhal: Command, trained: Path) -> None:
    assert polyhal("train", "--resume", "--save-dir", trained, "--steps", 15, "--device", "numpy").code == 0
    assert rows(trained)[-1]["step"] == 15


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (["--width", 32], "--width 32 contradicts"),
        (["--seed", 5], "--seed 5 contradicts"),
        (["--lr", 1.0], "--lr 1.0 contradicts"),
    ],
)
def test_resuming_with_other_settings_is_refused(
    polyhal: Command, trained: Path, changed: list[Any], expected: str
) -> None:
    outcome = polyhal("train", "--resume", "--save-dir", trained, "--device", "numpy", *changed)
    assert outcome.code == 2
    assert expected in outcome.err


def test_resuming_on_another_text_is_refused(polyhal: Command, trained: Path, text: Path) -> None:
    text.write_text(text.read_text().upper())
    outcome = polyhal("train", "--resume", "--save-dir", trained, "--device", "numpy")
    assert outcome.code == 2
    assert "its content differs" in outcome.err


def test_resuming_nothing_is_refused(polyhal: Command) -> None:
    outcome = polyhal("train", "--resume", "--save-dir", "nowhere", "--device", "numpy")
    assert outcome.code == 2
    assert "nowhere contains no run to resume" in outcome.err


def test_a_run_is_only_overwritten_on_request(polyhal: Command, trained: Path, text: Path) -> None:
    before = (trained / "metrics.jsonl").read_bytes()
    refused = polyhal("train", text, *TINY, "--steps", 1, "--device", "numpy", "--save-dir", trained)
    assert refused.code == 2
    assert "already contains a run" in refused.err
    assert (trained / "metrics.jsonl").read_bytes() == before
    bad = polyhal("train", text, *TINY, "--steps", 1, "--lr", -1, "--save-dir", trained, "--overwrite")
    assert bad.code == 2
    assert (trained / "metrics.jsonl").read_bytes() == before
    done = polyhal("train", text, *TINY, "--steps", 1, "--device", "numpy", "--save-dir", trained, "--overwrite")
    assert done.code == 0
    assert [r["step"] for r in rows(trained)] == [1]


def test_default_folders_are_named_after_the_text_and_numbered(polyhal: Command, text: Path, tmp_path: Path) -> None:
    for _ in range(2):
        polyhal("train", text, *TINY, "--steps", 2, "--device", "numpy", "--stop-after", 1)
    assert {p.name for p in (tmp_path / "runs").iterdir()} == {"rhyme", "rhyme-2"}
    assert polyhal("train", text, "--resume", "--device", "numpy").code == 0
    assert rows(tmp_path / "runs" / "rhyme-2")[-1]["step"] == 2


def test_the_command_line_overrides_a_configuration_file(polyhal: Command, text: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        f'text = "{text}"\ndevice = "numpy"\nsave-dir = "run"\nsteps = 9\n[train]\nlayers = 1\nwidth = 8\nheads = 2\n'
        "context = 8\nbatch_size = 2\nlr = 1\nsample_every = 0\n"
    )
    outcome = polyhal("train", "--config", "c.toml", "--epochs", 0.01, "--lr", 0.5)
    assert outcome.code == 0, outcome.err
    options = load(tmp_path / "run" / "last", "numpy")["extra"]["options"]
    assert (options["layers"], options["width"], options["lr"], options["steps"]) == (1, 8, 0.5, 2)


@pytest.mark.slow
def test_byte_pairs_accumulation_and_no_validation(polyhal: Command, text: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[data]'")
    options = ["--tokenizer", "bpe", "--vocabulary", 300, "--accumulate", 2, "--val-split", 0, "--schedule", "constant"]
    outcome = polyhal("train", text, *TINY, *options, "--steps", 3, "--device", "numpy", "--save-dir", "run")
    assert outcome.code == 0, outcome.err
    assert all(r["val_loss"] is None for r in rows(tmp_path / "run"))
    assert (tmp_path / "run" / "best" / "state.json").exists()


def test_the_default_text_is_the_standard_library(polyhal: Command, tmp_path: Path) -> None:
    outcome = polyhal("train", *TINY, "--steps", 1, "--device", "numpy")
    assert outcome.code == 0, outcome.err
    assert "Python's standard library" in outcome.out
    assert (tmp_path / "runs" / "python" / "last").is_dir()
    assert library().text == library().text


def test_a_missing_matplotlib_costs_only_the_picture(
    polyhal: Command, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    outcome = polyhal("train", text, *TINY, "--steps", 2, "--device", "numpy", "--save-dir", "run")
    assert outcome.code == 0, outcome.err
    assert 'pip install "polyhal[plot]"' in outcome.out
    assert not (tmp_path / "run" / "loss.png").exists()


def test_a_loss_that_is_not_a_number_ends_the_run(polyhal: Command, text: Path) -> None:
    with np.errstate(all="ignore"):
        outcome = polyhal("train", text, *TINY, "--steps", 9, "--device", "numpy", "--lr", 1e30, "--clip", 0)
    assert outcome.code == 2
    assert "the training loss became" in outcome.err
    assert "lower --lr" in outcome.err


def test_steps_do_not_wait_for_the_device(polyhal: Command, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[object] = []
    original = Device.download
    monkeypatch.setattr(Device, "download", lambda self, ref: (reads.append(ref), original(self, ref))[1])
    options = ["--log-every", 30, "--eval-every", 30, "--steps", 30, "--device", "numpy"]
    polyhal("train", text, *TINY, *options, "--save-dir", "a")
    few = len(reads)
    reads.clear()
    polyhal("train", text, *TINY, *options, "--save-dir", "b", "--log-every", 1)
    assert len(reads) - few == 29


def test_a_gpu_trains_a_larger_model_and_a_slow_device_takes_fewer_steps() -> None:
    assert TrainOptions(**presets.for_device(Device("numpy"))).width == 128
    assert presets.steps_for(0.1, 1e9) == 950
    assert presets.steps_for(100.0, 1e9) == 200
    assert presets.steps_for(1e-4, 50) == 1000
    assert presets.steps_for(1e-4, 1e9) == 5000


@pytest.mark.parametrize(("schedule", "last"), [("cosine", 0.1), ("linear", 0.1), ("constant", 1.0)])
def test_schedules_rise_to_their_peak_and_end_where_they_should(schedule: str, last: float) -> None:
    shares = [share_of_peak(s, warmup=4, steps=20, schedule=schedule) for s in range(21)]
    assert shares[:4] == [0.25, 0.5, 0.75, 1.0]
    assert shares[4] == 1.0
    assert shares[20] == pytest.approx(last)
    assert shares[4:] == sorted(shares[4:], reverse=True)


def test_events_for_tensorboard(polyhal: Command, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard reads the values of metrics.jsonl. Without its package, a sentence precedes any file."""
    command = ["train", text, *TINY, "--steps", 4, "--log-every", 2, "--device", "numpy", "--save-dir", "run"]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
        refused = polyhal(*command, "--tensorboard", "events")
    assert (refused.code, 'pip install "polyhal[tensorboard]"' in refused.err, Path("run").exists()) == (2, True, False)
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = polyhal(*command, "--tensorboard", "events")
    assert done.code == 0, done.err
    found = EventAccumulator("events")
    found.Reload()
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [
        (row["step"], pytest.approx(row["loss"], rel=1e-6)) for row in rows
    ]
