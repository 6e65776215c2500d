"""The page of performance: short readings of its tables, and a summary that counts what the tables have."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.measured_tables import with_tables
from benchmarks.report import results
from benchmarks.summary import comparisons, summary

_RESULTS = results()


@pytest.mark.parametrize("result", _RESULTS, ids=lambda r: f"{r['place']}, {r['benchmark']}")
def test_words_of_a_result_are_short(result: dict[str, Any]) -> None:
    """Records of attempts are on docs/performance-notes.md."""
    notes = result.get("notes", [])
    assert len(notes) <= 3
    assert [n for n in (*notes, result.get("how", "")) if len(n) > 300 or "\n" in n] == []


def _result(date: str, ours: float, peer: float) -> dict[str, Any]:
    return {
        "benchmark": "kernels",
        "place": "somewhere",
        "date": date,
        "devices": {"opencl:0": {"name": "a card", "driver": "NVIDIA CUDA 580.1", "type": "gpu"}},
        "rows": [
            {"name": "matmul 1024", "seconds": {"opencl:0": [ours, ours, ours], "PyTorch": [peer, peer, peer]}},
            {
                "name": "sum",
                "seconds": {"opencl:0": [1.0, 1.0, 1.0], "PyTorch": [2.0, 2.0, 2.0], "NumPy": [1.5, 1.5, 1.5]},
            },
            {"name": "sort", "seconds": {"opencl:0": [1.0, 1.0, 1.0]}},
        ],
    }


def test_the_latest_figures_and_the_fastest_peer_count() -> None:
    found = comparisons([_result("2026-02-01", 4.0, 1.0), _result("2026-01-01", 1.0, 1.0)])
    assert {(c.family, c.ratio) for c in found} == {("matrix products", 0.25), ("reductions, softmax, norms", 1.5)}


def test_the_summary_names_slower_workloads() -> None:
    lines = summary([_result("2026-01-01", 4.0, 1.0)])
    assert "| **all** | 1 of 2; 0.25, 0.88 |" in lines
    assert lines[lines.index("**a card, OpenCL**") + 2] == "- matrix products: matmul 1024 0.25"


def test_every_workload_belongs_to_a_family() -> None:
    assert [c for c in comparisons(_RESULTS) if c.family == "other"] == []


_PAGE = "before\n<!-- Measured in somewhere: {} -->\nold\n<!-- End of the measured table -->\nafter\n"


def _measured() -> dict[str, Any]:
    result = _result("2026-01-01", 2e-3, 1e-3)
    result["limits"] = {"opencl:0": {"bytes_per_s": 4e12, "flops_per_s": 4e12, "matrix_flops_per_s": {}}}
    result["rows"][0] |= {"flops": 4e9, "nbytes": 0, "wall": False, "limit": "flops_per_s"}
    return result


def test_a_table_in_a_page_has_figure_share_and_ratio() -> None:
    page = with_tables(_PAGE.format("matmul 1024"), lambda name: _measured())
    assert "| matmul 1024 | OpenCL | 2.0 TFLOP/s | 50% | 0.50 |" in page.splitlines()
    assert (page.splitlines()[0], page.splitlines()[-1], "old" in page) == ("before", "after", False)
    assert with_tables(page, lambda name: _measured()) == page


def test_a_row_that_a_page_names_exists() -> None:
    with pytest.raises(ValueError, match=r"somewhere.json has no row 'matmul 7'; correct the comment"):
        with_tables(_PAGE.format("matmul 7"), lambda name: _measured())
