"""The page that says how ops run where, and the command that writes it."""

from __future__ import annotations

from pathlib import Path

import faulty_kernels as faulty
import pytest

from polyhal.hal.device import Device
from polyhal.hal.errors import CorruptFileError
from polyhal.hal.ops import OPS
from polyhal.hal.testing import Scope
from polyhal.hal.testing.certification.certificate import write
from polyhal.hal.testing.certification.examination import examine
from polyhal.hal.testing.tools import coverage
from polyhal.hal.testing.tools.coverage import Column

DOCS = Path(__file__).parents[2] / "docs"
DATA = DOCS / "data" / "coverage"
COMMAND = "out of date: python -m polyhal.hal.testing.tools.coverage docs/coverage.md --device numpy"


def columns() -> list[Column]:
    return [Column.from_file(p) for p in sorted(DATA.glob("*.json"))]


def test_the_page_is_what_the_command_writes() -> None:
    assert (DOCS / "coverage.md").read_text(encoding="utf-8") == coverage.render(columns()), COMMAND


def test_the_numpy_column_is_up_to_date() -> None:
    kept = next(c for c in columns() if c.name == "numpy").cells
    assert coverage.survey(Device("numpy")) == kept, COMMAND


def test_every_op_is_on_the_page() -> None:
    page = (DOCS / "coverage.md").read_text(encoding="utf-8")
    assert [op.name for op in OPS if op.tests.samples is not None and f"| `{op.name}` |" not in page] == []


def test_a_survey_agrees_with_a_run() -> None:
    """Looking at plans says the same as running them, except that small runs see fewer calls."""
    device = Device("numpy:no_f64")
    ran = coverage.of_certificate(examine(device, only="forward/s*", keep=False), "numpy", "").cells
    looked = coverage.survey(device)
    for op in ("softmax", "sum", "sqrt", "slice", "scatter_rows"):
        assert ran[op] == looked[op]
    assert looked["sqrt"]["float64"] == "–"


def test_the_command_merges_devices_and_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    page, certificate = tmp_path / "coverage.md", tmp_path / "far-away.json"
    found = examine(faulty.opened(faulty.WrongRequiredName()), only="forward/*", scope=Scope(small=True), keep=False)
    write(found, certificate)
    far = ["--certificate", str(certificate), "--label", "far-away=Far away"]
    assert coverage.main([str(page), "--device", "numpy:no_f64", *far]) == 0
    text = page.read_text(encoding="utf-8")
    header = next(line for line in text.splitlines() if line.startswith("| op |"))
    assert header == "| op | dtypes | Far away | numpy:no_f64 |"
    row = {line.split("`")[1]: line.split("|")[2:-1] for line in text.splitlines() if line.startswith("| `")}
    assert [c.strip() for c in row["floor"]] == ["floats", "C; ! f64", "C; – f64"]
    assert [c.strip() for c in row["softmax"]] == ["floats", "N", "N; – f64"]
    # Without the devices the page stays the same, labels included.
    assert coverage.main([str(page)]) == 0
    assert page.read_text(encoding="utf-8") == text
    (tmp_path / "data" / "coverage" / "far-away.json").write_text('{"schema": 1, "cells": 3}')
    with pytest.raises(CorruptFileError, match="no column"):
        coverage.main([str(page)])
