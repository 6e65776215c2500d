"""Text files of users and runs: tokenizers, configuration, metrics, reports of devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.reliability.fuzzing.case import FileFormat, HostileInput
from benchmarks.reliability.fuzzing.mutation import damaged_bytes, damaged_json, damaged_toml
from benchmarks.reported_devices import page
from polyhal.commands import config_file
from polyhal.reports import machine_report
from polyhal.reports.machine_report import (
    Baseline,
    DeviceFacts,
    FailedCheck,
    MachineReport,
    QuickChecks,
    ReportedDevice,
    SpeedFigure,
)
from polyhal.text import BPETokenizer, CharTokenizer, load_tokenizer
from polyhal.training import TrainOptions
from polyhal.training.metrics import Metrics
from polyhal.training.options import NAMES

_NAME = "x"
_TEXT = "one two three four five six seven"


def formats() -> list[FileFormat]:
    """Return all formats of this file."""
    return [
        _json("tokenizer (characters)", CharTokenizer.train(_TEXT).to_json(), _read_tokenizer),
        _json("tokenizer (BPE)", BPETokenizer.train(_TEXT, 260, 1).to_json(), _read_tokenizer),
        FileFormat(
            "configuration", _configuration, _read_configuration, HostileInput({_NAME: "\n".join(_OPTIONS).encode()})
        ),
        FileFormat("metrics", _metrics, lambda f: Metrics(f / _NAME).rows(), HostileInput({_NAME: _ROWS})),
        _json("report of devices", json.dumps(_REPORT.to_json()), _read_report),
    ]


def _json(name: str, text: str, read: Callable[[Path], Any]) -> FileFormat:
    tree = json.loads(text)
    return FileFormat(
        name,
        lambda random: HostileInput({_NAME: damaged_json(random, tree)}),
        read,
        HostileInput({_NAME: text.encode()}),
    )


def _read_tokenizer(folder: Path) -> Any:
    tokenizer = load_tokenizer((folder / _NAME).read_text(encoding="utf-8", errors="replace"))
    ids = tokenizer.encode(_TEXT)
    if not all(0 <= i < tokenizer.vocab_size for i in ids):
        raise AssertionError(f"ids {ids} of {tokenizer.vocab_size} tokens")
    return ids, tokenizer.decode(ids), tokenizer.decode(range(min(tokenizer.vocab_size, 9))), tokenizer.to_json()


_OPTIONS = [
    "layers = 2",
    "lr = 0.1",
    'tokenizer = "char"',
    "steps = 10",
    "seed = 1",
    'schedule = "cosine"',
    "dropout = 0.1",
]


def _configuration(random: Random) -> HostileInput:
    return HostileInput({_NAME: damaged_toml(random, _OPTIONS)})


def _read_configuration(folder: Path) -> Any:
    options = config_file.merged(config_file.read(folder / _NAME, frozenset(NAMES)), {"steps": None})
    return TrainOptions(**options).to_json()


_ROWS = b"".join(
    json.dumps({"step": s, "epoch": 0.1, "loss": 2.0, "val_loss": None, "lr": 0.1, "tokens_per_s": 5.0}).encode()
    + b"\n"
    for s in (10, 20)
)


def _metrics(random: Random) -> HostileInput:
    lines = _ROWS.splitlines()
    lines[0] = damaged_json(random, json.loads(lines[0]))
    data = b"\n".join(lines) + b"\n"
    return HostileInput({_NAME: damaged_bytes(random, data) if random.random() < 0.3 else data})


_FIGURE = SpeedFigure("product", "float32", "8 x 8 x 8", 12.5, "GFLOP/s", 0.1)
_REPORT = MachineReport(
    "2026-01-02",
    60.0,
    {"python": "3.11.0"},
    {"system": "Linux 6.1", "machine": "x86_64", "processor": "a processor", "cores": "2"},
    (
        ReportedDevice(
            "opencl:0",
            DeviceFacts("a GPU", "gpu", "a vendor", "1.0", 2**30, {"fp16": "True"}, {"max_allocation": 2**28}, ("float32",),
                        ("float32",), ("a_quirk",)),
            QuickChecks(3, 2, 1.5, {"float32": "add"}, (FailedCheck("forward/exp/float32", "exp", "float32", "", "wrong"),)),
            (_FIGURE,),
        ),
        ReportedDevice("opencl:1", None, None, (), "it cannot be opened"),
    ),
    (Baseline("PyTorch 2.5", "cpu", (_FIGURE,)),),
    ("backend wgpu: not installed",),
)  # fmt: skip


def _read_report(folder: Path) -> Any:
    report = machine_report.read(folder / _NAME)
    return report.to_json(), page([report])
