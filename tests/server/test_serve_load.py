"""The load test, with few clients for seconds; `python -m benchmarks serve_load` is the long form."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[llm]'")
from benchmarks.serving.table import serve_load_table
from benchmarks.suite import serve_load
from tests.llm.small_models import with_bytes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory and files of a process are read from /proc"),
]


def test_clients_get_the_answers_of_single_runs_and_nothing_grows(tmp_path: Path) -> None:
    file, result = with_bytes(tmp_path / "model.gguf"), tmp_path / "result.json"
    small = {"minutes": 0.03, "clients": 8, "slots": 3, "context": 64, "questions": 6, "tokens": 12}
    options = [f"--{name}={value}" for name, value in small.items()]
    code = serve_load.main([f"--files={file}", f"--json={result}", "--devices=numpy", *options])
    measured = json.loads(result.read_text(encoding="utf-8"))
    (row,) = measured["rows"]
    assert code == 0, row["findings"]
    assert row["counts"]["compared"] > 10
    assert row["counts"]["cancelled"] > 0
    head, _, cells = serve_load_table(measured)
    shown = dict(zip(head.split(" | "), cells.split(" | "), strict=True))
    assert [shown[name] for name in ("compared", "cancelled")] == [
        f"{row['counts'][name]:,}" for name in ("compared", "cancelled")
    ]
