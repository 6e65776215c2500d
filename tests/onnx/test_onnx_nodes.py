"""ONNX's own node tests on every device under test, a share of them in each case."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="needs onnx: pip install 'polyhal[onnx]'")

import onnx
from devices import NUMPY, TEST_DEVICES, listed
from node_cases import cases, operators_table, outcome

from polyhal.onnx import backend

pytestmark = pytest.mark.slow

SHARES = 100
KNOWN = {
    "test_attention_4d_causal_fp16": "two of 192 results differ by one unit of float16",
    "test_attention_4d_causal_fp16_expanded": "as above",
    "test_dft_inverse": "expects a rounding error of 1.9e-7 where the exact result is 0",
    "test_dft_inverse_opset19": "as above",
    "test_loop16_seq_none": "its expected result is an array without axes that contains a sequence",
}
"""Tests that fail, with the reason."""


def _expected(name: str) -> bool:
    drawn = "bernoulli" in name or "training_dropout" in name  # numbers of NumPy's generator
    return name not in KNOWN and not drawn


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize(
    "device", TEST_DEVICES if listed("POLYHAL_TEST_DEVICES") else ("numpy", *TEST_DEVICES[len(NUMPY) :])
)
def test_node_tests_pass(device: str, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    chosen = [case for name, case in list(cases().items())[share::SHARES] if _expected(name)]
    found = [outcome(case, device) for case in chosen]
    assert [o for o in found if o.kind == "failed"] == []
    assert sum(o.kind == "passed" for o in found) >= 0.5 * len(found)


def test_the_page_lists_the_operators() -> None:
    page = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")
    assert operators_table() in page, "insert the output of python -m tests.onnx --operators into docs/onnx.md"


def test_the_runner_of_onnx_accepts_the_backend() -> None:
    suite = onnx.backend.test.BackendTest(backend, __name__).include("test_(abs|matmul_2d|loop11|if)_cpu").test_suite
    result = suite.run(__import__("unittest").TestResult())
    assert result.wasSuccessful(), result
    assert result.testsRun - len(result.skipped) >= 4
