"""Answers that follow a grammar: random models write valid JSON, matches of expressions, and calls of tools."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[llm]'")
pytest.importorskip("llguidance", reason="needs llguidance: pip install 'polyhal[llm]'")

from polyhal.generation import ConstraintError, GenerationEngine, GenerationRequest, SamplingParameters
from polyhal.llm import LanguageModel, load, parse_tool_calls

from .small_models import with_bytes

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4, "pattern": "^[a-z]*$"},
        "size": {"type": "integer", "minimum": -20, "maximum": 700},
        "tags": {"type": "array", "items": {"enum": ["red", "blue", None]}, "minItems": 1, "maxItems": 3},
        "inner": {"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/point"}]},
    },
    "required": ["name", "size", "tags"],
    "additionalProperties": False,
    "$defs": {"point": {"type": "object", "properties": {"x": {"const": 1.5}}, "required": ["x"]}},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return load(with_bytes(tmp_path_factory.mktemp("grammars") / "model.gguf", context=256), "numpy")


def test_a_batch_of_constrained_and_free_sequences(model: LanguageModel) -> None:
    """Texts follow their grammars, and no sequence depends on the others."""
    jsonschema = pytest.importorskip("jsonschema")
    grammars = model.grammars
    constraints = [grammars.json_schema(SCHEMA), grammars.regex(r"[ab]{2,4}-(\d\d|é)+!"), None]
    requests = [
        GenerationRequest(
            [1, 40 + seed],
            (120, 40, 20)[seed % 3],
            SamplingParameters(0.9, seed=seed),
            frozenset({2}),
            constraint=constraints[seed % 3],
        )
        for seed in range(12)
    ]
    engine = GenerationEngine(model.model, 4)
    streams = [engine.submit(request) for request in requests]
    tokens = [list(stream) for stream in streams]
    texts = [model.tokenizer.decode(ids) for ids in tokens]
    for text, stream in zip(texts[::3], streams[::3], strict=True):
        assert stream.finish_reason == "stop"
        jsonschema.validate(json.loads(text), SCHEMA)
    assert len(set(texts[::3])) > 2
    for text, stream in zip(texts[1::3], streams[1::3], strict=True):
        assert re.fullmatch(r"[ab]{2,4}-(\d\d|é)+!", text) or stream.finish_reason == "length"
    for i in (0, 1, 2):
        assert list(GenerationEngine(model.model).submit(requests[i])) == tokens[i]


def test_choices_lark_and_forced_tools(model: LanguageModel) -> None:
    chosen = {
        "".join(model.stream("a", 40, temperature=2.0, seed=i, choices=["yes", "no", "nobody"])) for i in range(8)
    }
    assert {"yes", "no"} <= chosen <= {"yes", "no", "nobody"}
    assert "".join(model.stream("a", 40, grammar='start: "a" b "c"\nb: /[0-9]/ | "x"')) in {
        f"a{c}c" for c in "0123456789x"
    }
    parameters = {"type": "object", "properties": {"n": {"enum": [1, 22]}}, "required": ["n"]}
    tools = [{"function": {"name": name, "parameters": parameters}} for name in ("add", "sum")]
    form = type(model.tool_calls)("<tool_call>\n", "\n</tool_call>")
    for used in (form, model.tool_calls):
        text = "".join(model.stream("a", 200, temperature=1.0, seed=3, constraint=used.grammar(model.grammars, tools)))
        before, (call,) = parse_tool_calls(text, ["add", "sum"])
        assert before == ""
        assert call.name in ("add", "sum")
        assert json.loads(call.arguments)["n"] in (1, 22)


def test_forced_tokens_need_few_steps_of_the_model(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = GenerationEngine(model.model, captured=False)
    constraint, calls = model.grammars.choices(["x" * 60]), []
    decode = engine._step
    monkeypatch.setattr(engine, "_step", lambda variant: (calls.append(variant.width), decode(variant))[1])
    stream = engine.submit(GenerationRequest([1], 200, SamplingParameters(0.0), constraint=constraint))
    assert model.tokenizer.decode(list(stream)) == "x" * 60
    assert len(calls) <= 60 / 8 + 1
    np.testing.assert_equal((stream.proposed, stream.finish_reason), (0, "stop"))


def test_bad_grammars_are_refused(model: LanguageModel) -> None:
    grammars = model.grammars
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(2000):
        deep = {"type": "array", "items": deep}
    bad: list[tuple[Any, Any]] = [
        (grammars.json_schema, {"type": "strange"}),
        (grammars.json_schema, {"$ref": "#/nowhere"}),
        (grammars.json_schema, {"$ref": "#"}),
        (grammars.json_schema, {"$ref": "https://example.com/schema"}),
        (grammars.json_schema, {"enum": ["x" * 300_000]}),
        (grammars.json_schema, deep),
        (grammars.json_schema, [1]),
        (grammars.regex, "(a"),
        (grammars.regex, r"(a)\1"),
        (grammars.regex, "(" * 5000 + "a" + ")" * 5000),
        (grammars.lark, "start: nowhere"),
        (grammars.choices, []),
    ]
    for compile_, value in bad:
        with pytest.raises(ConstraintError):
            compile_(value)
    with pytest.raises(ValueError, match="one of constraint, schema"):
        model.stream_ids("a", 5, regex="a", choices=["b"])
