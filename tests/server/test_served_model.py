"""A small model of a file behind the server: requests that share a batch get the answers of single requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")
pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[llm]'")
from starlette.testclient import TestClient

from polyhal.llm import load
from polyhal.server import BatchGenerator, ServedLanguageModel, create_app
from tests.llm.small_models import with_bytes


def test_requests_of_a_batch_get_the_answers_of_single_requests(tmp_path: Path) -> None:
    path = with_bytes(tmp_path / "model.gguf")
    model = load(path, "numpy", draft=path)
    app = create_app(ServedLanguageModel(model, "small"), BatchGenerator(model, 3))
    texts = ["a", "abba", "baa", "b" * 9, "aab", "bab"]
    with TestClient(app) as client, ThreadPoolExecutor(6) as pool:

        def ask(text: str) -> tuple[str, str]:
            body: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 8}
            choice = client.post("/v1/chat/completions", json=body).json()["choices"][0]
            return choice["message"]["content"], choice["finish_reason"]

        together = list(pool.map(ask, texts))
        assert together == [ask(text) for text in texts]
        message = {"role": "user", "content": texts[1]}
        assert together[1][0] == model.chat([message], 8, temperature=0)
        if find_spec("llguidance"):
            form: dict[str, Any] = {"type": "json_schema", "json_schema": {"schema": {"const": [1]}}}
            body = {"messages": [message], "response_format": form}
            assert client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"] == "[1]"
            form["json_schema"]["schema"] = {"type": "strange"}
            error = client.post("/v1/chat/completions", json=body)
            assert (error.status_code, error.json()["error"]["code"]) == (400, "invalid_grammar")
            tool = {"type": "function", "function": {"name": "f", "parameters": {"const": {}}}}
            body = {"messages": [message], "tools": [tool], "tool_choice": "required"}
            choice = client.post("/v1/chat/completions", json=body).json()["choices"][0]
            assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
            assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
        counts = dict(
            line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if not line.startswith("#")
        )
        assert 0 < int(counts["polyhal_accepted_tokens_total"]) <= int(counts["polyhal_proposed_tokens_total"])
        vectors = client.post("/v1/embeddings", json={"input": texts[:2]}).json()["data"]
        assert vectors[1]["embedding"] == model.embed(texts[:2])[1].tolist()
