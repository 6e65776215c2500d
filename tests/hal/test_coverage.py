"""The page of how ops run on each device, and the command that writes it."""

from __future__ import annotations

from pathlib import Path

import faulty_kernels as faulty
import pytest

from polyhal.hal.device import Device
from polyhal.hal.errors import CorruptFileError
from polyhal.hal.ops import OPS
from polyhal.hal.testing import Scope
from polyhal.hal.testing.certification.certificate import write
from polyhal.hal.testing.certification.certify import certify
from tools import coverage
from tools.coverage_columns import Column, column_of_certificate, listed_ops, resolve_ops
from tools.coverage_page import render

DOCS = Path(__file__).parents[2] / "docs"


def test_every_op_is_on_the_page() -> None:
    page = (DOCS / "coverage.md").read_text(encoding="utf-8")
    missing = [op.name for op in OPS if op.tests.samples is not None and f"| `{op.name}` |" not in page]
    assert missing == [], "run `make generate`"


def test_an_op_that_was_not_resolved_on_a_device_is_unknown() -> None:
    """A contributor adds an op without owning the devices of the page."""
    column = Column("far-away", "Far away", "d", "1.0", "2026-01-01", {"softmax": {"float32": "N"}})
    assert "| `tanh` | floats | ? |" in render([column])
    assert {"tanh", "softmax"} <= {op.name for op in column.outdated()}  # softmax has more dtypes than float32


def test_a_column_drops_removed_ops() -> None:
    column = Column("far-away", "Far away", "d", "1.0", "2026-01-01", {"softmaximum": {"float32": "N"}})
    assert column.with_cells({"tanh": {"float32": "D"}}).cells == {"tanh": {"float32": "D"}}


def test_resolving_agrees_with_running() -> None:
    """Plans agree with runs, except that small runs have fewer calls."""
    device = Device("numpy:no_f64")
    ran = column_of_certificate(certify(device, only="forward/s*", keep=False), "numpy", "").cells
    resolved = resolve_ops(device, listed_ops())
    for op in ("softmax", "sum", "sqrt", "slice", "scatter_rows"):
        assert ran[op] == resolved[op]
    assert resolved["sqrt"]["float64"] == "–"


def test_the_command_merges_devices_and_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_CACHE_DIR", str(tmp_path / "cache"))
    page, certificate = tmp_path / "coverage.md", tmp_path / "far-away.json"
    found = certify(
        faulty.opened(faulty.WrongRequiredName()), only="forward/[fs][lo]*", scope=Scope(small=True), keep=False
    )
    write(found, certificate)
    far = ["--certificate", str(certificate), "--label", "far-away=Far away"]
    assert coverage.main([str(page), "--device", "numpy:no_f64", *far]) == 0
    text = page.read_text(encoding="utf-8")
    header = next(line for line in text.splitlines() if line.startswith("| op |"))
    assert header == "| op | dtypes | Far away | numpy:no_f64 |"
    row = {line.split("`")[1]: line.split("|")[2:-1] for line in text.splitlines() if line.startswith("| `")}
    assert [c.strip() for c in row["floor"]] == ["floats", "C; ! f64", "C; – f64"]
    assert [c.strip() for c in row["softmax"]] == ["floats", "N", "N; – f64"]
    # Without the devices the page does not change, including labels.
    assert coverage.main([str(page)]) == 0
    assert page.read_text(encoding="utf-8") == text
    (tmp_path / "data" / "coverage" / "far-away.json").write_text('{"schema": 1, "cells": 3}')
    with pytest.raises(CorruptFileError, match="is not a column"):
        coverage.main([str(page)])
