"""`polyhal chat`, `models`, `quantize`, and `generate` with models of others."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[llm]'")

from tests.llm.small_models import with_bytes

from .conftest import Command


def test_models_are_listed_with_what_fits_and_what_is_damaged(polyhal: Command, tmp_path: Path) -> None:
    model = with_bytes(tmp_path / "model.gguf")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "cut.gguf").write_bytes(model.read_bytes()[:500])
    found = json.loads(polyhal("models", ".", "--json", "--device", "numpy").out)["models"]
    assert [row["path"] for row in found] == ["model.gguf", "sub/cut.gguf"]
    assert found[0] | {"memory": 0} == {
        "path": "model.gguf",
        "architecture": "llama",
        "parameters": 2696,
        "type": "f32",
        "bytes": 2696 * 4,
        "context": 64,
        "memory": 0,
        "fits": True,
    }
    assert "262 items of tokenizer.ggml.tokens" in found[1]["problem"]
    table = polyhal("models", ".", "--device", "numpy")
    assert table.code == 0
    assert "model.gguf" in table.out
    assert polyhal("models", "nowhere").code == 2


def test_models_are_quantised_and_continue_a_text(polyhal: Command, tmp_path: Path) -> None:
    with_bytes(tmp_path / "model.gguf")
    quantized = json.loads(polyhal("quantize", "model.gguf", "half.gguf", "--type", "f16", "--json").out)
    assert (quantized["type"], quantized["bytes"]) == ("f16", Path("half.gguf").stat().st_size)
    options = ["--prompt", "ab", "--max-tokens", 5, "--seed", 1, "--device", "numpy"]
    written = [polyhal("generate", name, *options) for name in ("model.gguf", "half.gguf")]
    assert [w.code for w in written] == [0, 0]
    assert written[0].out.startswith("ab")
    for more in (["--draft", "half.gguf"], ["--lookup"]):
        speculative = polyhal("generate", "model.gguf", *options, *more, "--stats")
        assert speculative.out == written[0].out
        assert "tokens, " in speculative.err
    assert polyhal("generate", "model.gguf", *options, "--draft", "half.gguf", "--lookup").code == 2
    pytest.importorskip("llguidance", reason="needs llguidance: pip install 'polyhal[llm]'")
    (tmp_path / "schema.json").write_text('{"enum": [[1, "x"]]}')
    options[3] = 40
    assert polyhal("generate", "model.gguf", *options, "--json-schema", "schema.json").out == 'ab[1, "x"]\n'
    assert polyhal("generate", "model.gguf", *options, "--regex", "(").code == 2
    assert polyhal("generate", "model.gguf", *options, "--regex", "a", "--json-schema", "schema.json").code == 2
    assert polyhal("generate", "model.gguf", *options, "--grammar", "nowhere").code == 2
    wrong = polyhal("quantize", "model.gguf", "x.gguf", "--type", "q99")
    assert wrong.code == 2
    assert "q4_k_m" in wrong.err
    assert not (tmp_path / "x.gguf").exists()
    before = (tmp_path / "half.gguf").read_bytes()
    assert "half.gguf exists; use --overwrite" in polyhal("quantize", "model.gguf", "half.gguf", "--type", "q8_0").err
    assert (tmp_path / "half.gguf").read_bytes() == before
    assert polyhal("quantize", "model.gguf", "half.gguf", "--type", "q8_0", "--overwrite").code == 0
    (tmp_path / "folder").mkdir()
    assert "folder is a folder; expected the name of a file" in polyhal("quantize", "model.gguf", "folder").err
    assert "folder has no config.json and no GGUF file" in polyhal("chat", "folder").err
    same = polyhal("quantize", "model.gguf", "model.gguf")
    assert (same.code, "model.gguf is the source" in same.err) == (2, True)
    few = polyhal("chat", "model.gguf", "--device", "numpy", "--max-tokens", -1)
    assert (few.code, "max_tokens is -1; expected 0 or more" in few.err) == (2, True)
    assert polyhal("chat", "model.gguf", "--device", "numpy", "--temperature", -1).code == 2


def test_a_conversation_has_commands(polyhal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_bytes(tmp_path / "model.gguf")
    lines = [
        "/help",
        "/temperature 0",
        "/max-tokens 3",
        "/seed x",
        "/top-k",
        "/save",
        "/temperature -1",
        "/system Be\u0020good.",
        "a\\",
        "b",
        "/retry",
        "/save talk.json",
        "/reset",
        "/load talk.json",
        "/load nowhere.json",
        "/nonsense",
        "/quit",
        "not read",
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    outcome = polyhal("chat", "model.gguf", "--device", "numpy", "--draft", "model.gguf")
    assert outcome.code == 0, outcome.err
    for text in (
        "/max-tokens N",
        "temperature 0.0",
        "max-tokens 3",
        "top-k default (no limit)",
        "Be good.",
        "3 messages saved to",
    ):
        assert text in outcome.out
    for text in (
        "/seed x; expected a whole number",
        "temperature is -1",
        "expected /save FILE",
        "nowhere.json",
        "unknown command /nonsense",
    ):
        assert text in outcome.err
    talk = json.loads((tmp_path / "talk.json").read_text())
    assert [m["role"] for m in talk["messages"]] == ["system", "user", "assistant"]
    assert talk["messages"][1]["content"] == "a\nb"
    assert polyhal("chat", "nowhere.gguf").code == 2
