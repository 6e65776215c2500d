"""The example page of a language model writes the tokens that Python writes: Llama's architecture, cache and tokenizer."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.export.chromium import PROGRAM, Chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium; Debian, Ubuntu: apt install chromium"),
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "export_language_model.py"


def test_a_trained_model_writes_its_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("tokenizers")
    import polyhal.llm
    from polyhal.models.generation import generate
    from tests.llm.small_models import stories

    model, page = stories(tmp_path / "stories.gguf", with_vocabulary=True), tmp_path / "page.html"
    arguments = [str(model), str(page), "--device", "numpy", "--context", "40", "--prompt", ""]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    loaded = polyhal.llm.load(model, "numpy", context=40)
    ids = generate(loaded.model, [1], 40, temperature=0.0, stop_ids=loaded.stop_ids)
    browser = Chromium()
    try:
        browser.open(page)
        browser.wait_for("window.polyhal || document.querySelector('#status.error')")
        browser.evaluate("document.getElementById('temperature').value = 0")
        browser.evaluate("document.querySelector('button').click()")
        browser.wait_for("document.getElementById('status').textContent.includes('tokens')")
        written = browser.evaluate("document.getElementById('written').textContent")
        assert browser.console == []
    finally:
        browser.close()
    assert len(ids) > 30
    assert written == loaded.tokenizer.decode(ids)
