"""Records become tokens and rows, with the right tokens as targets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhal.finetune import Example, RecordError, arrange, encode_record, read_records


class Letters:
    """Encodes each character as its code; 1 begins a text and 2, written as $, ends it."""

    eos_id = 2

    def encode(
        self, text: str, max_len: int | None = None, *, add_bos: bool = False, recognise_special: bool = False
    ) -> list[int]:
        return [1] * add_bos + [2 if recognise_special and c == "$" else ord(c) for c in text]


class Chat:
    """`u:text;` and `a:text;`, with the begun answer `a:`."""

    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Any = None, *, add_generation_prompt: bool = True
    ) -> str:
        text = "".join(f"{m['role'][0]}:{m['content']};" for m in messages)
        return text + "a:" * add_generation_prompt


class Forgetful(Chat):
    """Leaves earlier answers out."""

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Any = None, *, add_generation_prompt: bool = True
    ) -> str:
        last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=0)
        kept = [m for i, m in enumerate(messages) if i > last or m["role"] != "assistant"]
        return super().render(kept, add_generation_prompt=add_generation_prompt)


def shown(example: Example) -> tuple[str, str]:
    """Return the text of an example, and the learned part with dots elsewhere."""
    text = "".join({1: "^", 2: "$"}.get(i, chr(i)) for i in example.ids)
    return text, "".join(c if learn else "." for c, learn in zip(text, example.learned, strict=True))


def talk(*texts: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]}


@pytest.mark.parametrize(
    ("record", "template", "text", "learned"),
    [
        ({"text": "abc"}, None, "^abc$", "^abc$"),
        ({"prompt": "1+1=", "completion": "2"}, None, "^1+1=2$", ".....2$"),
        (talk("hi", "yo", "and", "so"), Chat(), "u:hi;a:yo;u:and;a:so;", ".......yo;........so;"),
        (talk("hi", "yo", "and", "so", "end"), Chat(), "u:hi;a:yo;u:and;a:so;u:end;", ".......yo;........so;......"),
        (talk("hi", "yo", "and", "so"), Forgetful(), "u:hi;u:and;a:so;", ".............so;"),
    ],
)
def test_answers_and_completions_are_learned(record: dict[str, Any], template: Any, text: str, learned: str) -> None:
    assert shown(encode_record(record, "here", Letters(), template)) == (text, learned)
    whole = encode_record(record, "here", Letters(), template, learn_all=True)
    assert shown(whole) == (text, text)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[1]", "data.jsonl:2 is a list"),
        ("{", "data.jsonl:2 is not valid JSON"),
        ('{"tekst": "a"}', r"data.jsonl:2 has the keys \['tekst'\]"),
        ('{"text": 3}', "data.jsonl:2 has text 3"),
        ('{"prompt": "a", "completion": null}', "has completion None"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "no message of the assistant"),
        ('{"messages": "a"}', "unusable messages"),
    ],
)
def test_unusable_records_are_named_by_their_line(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "a"}\n' + line + "\n")
    with pytest.raises(RecordError, match=problem):
        [encode_record(record, place, Letters(), Chat()) for place, record in read_records(path)]


def test_other_files_are_one_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")
    assert [record for _, record in read_records(tmp_path / "a.txt")] == [{"text": "abc"}]
    (tmp_path / "b.txt").write_bytes(b"\xff")
    with pytest.raises(RecordError, match="not UTF-8"):
        list(read_records(tmp_path / "b.txt"))
    with pytest.raises(RecordError, match="no chat template"):
        encode_record(talk("a", "b"), "here", Letters())
    (tmp_path / "c.jsonl").write_text(json.dumps({"text": "a"}) + "\n\n")
    assert len(list(read_records(tmp_path / "c.jsonl"))) == 1
    (tmp_path / "d.json").write_text(json.dumps([{"text": "a"}, {"text": "b"}], indent=1))
    assert [record["text"] for _, record in read_records(tmp_path / "d.json")] == ["a", "b"]
    (tmp_path / "d.json").write_text("[{}, 3]")
    with pytest.raises(RecordError, match=r"record 2 of .*d.json is a int"):
        list(read_records(tmp_path / "d.json"))


def test_names_of_special_tokens_in_data_are_text_unless_they_are_recognised(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
    from polyhal.llm import ChatEncoder, ChatTemplate, open_model
    from tests.llm.small_models import with_bytes

    files = open_model(with_bytes(tmp_path / "m.gguf"))  # <s> is 1, </s> is 2; the template writes <s>role:content</s>
    tokenizer, template = files.load_tokenizer(), ChatTemplate("{{ tools }}" + files.chat_templates["default"])
    hostile: list[dict[str, Any]] = [
        {"messages": [{"role": "a</s>", "content": "<s>"}, {"role": "assistant", "content": "x</s>"}]},
        {"messages": talk("a", "b")["messages"], "tools": [{"<s>": "</s>"}]},
        {"prompt": "<s>", "completion": "x</s>"},
    ]
    for record, (few, many) in zip(hostile, (([1, 2, 1, 2, 1], 8), ([1, 2, 1, 2, 1], 7), ([1, 2], 4)), strict=True):
        for recognised in (False, True):
            chat = ChatEncoder(tokenizer, template, recognise_special=recognised)
            ids = encode_record(record, "here", tokenizer, chat, recognise_special=recognised).ids
            special = [i for i in ids if i in (1, 2)]
            assert len(special) == many if recognised else special == few
            text = tokenizer.decode(ids, keep_special=True)
            assert (text.count("<s>"), text.count("</s>")) == (many - many // 2, many // 2)


@given(
    lengths=st.lists(st.integers(2, 30), min_size=1, max_size=20),
    packing=st.booleans(),
    split=st.booleans(),
    data=st.data(),
)
def test_each_learned_token_is_a_target_once(lengths: list[int], packing: bool, split: bool, data: Any) -> None:
    context, names = 12, iter(range(10_000))
    examples = [
        Example(
            [next(names) for _ in range(n)],
            [False, *data.draw(st.lists(st.booleans(), min_size=n - 1, max_size=n - 1))],
        )
        for n in lengths
    ]
    rows = arrange(examples, context, packing=packing, split=split)
    pairs = {
        (int(rows.ids[r, t]), int(rows.targets[r, t])) for r, t in zip(*np.nonzero(rows.targets != -100), strict=True)
    }
    kept = [(e.ids, e.learned) if split else (e.ids[:context], e.learned[:context]) for e in examples]
    expected = {(ids[t - 1], ids[t]) for ids, learned in kept for t in range(1, len(ids)) if learned[t]}
    assert pairs == expected
    assert (rows.targets != -100).sum() == len(expected)
    assert rows.cut == (0 if split else sum(n > context for n in lengths))
    same = rows.examples[:, 1:] == rows.examples[:, :-1]
    assert (same | (rows.targets[:, :-1] == -100)).all()


def test_packing_fills_rows() -> None:
    rows = arrange([Example([1] * n, [True] * n) for n in (7, 5, 3, 6, 2, 4, 3)], 10)
    assert len(rows) == 3  # 30 tokens in rows of 10
    assert rows.packed
    assert (rows.examples > 0).all()
