"""Tokenizers: round trips, padding, and files."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError
from polyhal.text import BPETokenizer, CharTokenizer, Tokenizer, load_tokenizer

pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[data]'")
pytestmark = pytest.mark.slow
CORPUS = "It was the best of times, it was the worst of times. Ünïcödé 日本 😀\n" * 20
CHARACTERS = CharTokenizer.train(CORPUS)
BPE = BPETokenizer.train(CORPUS, 400)


@given(st.text(alphabet=sorted(set(CORPUS))))
def test_characters_round_trip(text: str) -> None:
    assert CHARACTERS.decode(CHARACTERS.encode(text)) == text


@given(st.text())
def test_unknown_characters_keep_their_place(text: str) -> None:
    known = set(CORPUS)
    expected = "".join(c if c in known else "\ufffd" for c in text)
    assert CHARACTERS.decode(CHARACTERS.encode(text)) == expected


@settings(deadline=None)
@given(st.text() | st.text(alphabet="<pad|>endoftx \n\r\t\x00\x85\u2028aé😀"))
def test_bpe_round_trips_any_text(text: str) -> None:
    assert BPE.decode(BPE.encode(text)) == text


@pytest.mark.parametrize("text", ["<pad>", "a<|endoftext|>b", "", " ", "\r\n\r\n", "\x00", "e\u0301", "\U0010ffff"])
def test_bpe_special_names_are_text(text: str) -> None:
    ids = BPE.encode(text)
    assert not {BPE.pad_id, BPE.end_id} & set(ids)
    assert BPE.decode(ids) == text


@pytest.mark.parametrize("tokenizer", [CHARACTERS, BPE], ids=["characters", "bpe"])
def test_common_behaviour(tokenizer: CharTokenizer | BPETokenizer) -> None:
    assert isinstance(tokenizer, Tokenizer)
    ids = tokenizer.encode("the best")
    assert tokenizer.encode("the best", 2) == ids[:2]
    assert tokenizer.encode("the best", len(ids) + 3) == [*ids, 0, 0, 0]
    assert tokenizer.decode(tokenizer.encode("the best", 50)) == "the best"
    assert tokenizer.encode("the best", 0) == []
    assert len(tokenizer.vocabulary) == tokenizer.vocab_size
    assert tokenizer.vocabulary[0] == "<pad>"
    with pytest.raises(ValueError, match="max_len is -1"):
        tokenizer.encode("x", -1)
    for bad in (-1, tokenizer.vocab_size):
        with pytest.raises(ValueError, match=f"token {bad}"):
            tokenizer.decode([bad])
    again = load_tokenizer(tokenizer.to_json())
    assert type(again) is type(tokenizer)
    assert again.encode(CORPUS) == tokenizer.encode(CORPUS)
    assert again.decode(ids) == "the best"


def test_bpe_learns_frequent_words() -> None:
    assert len(BPE.encode("It was the best of times")) < 12
    assert BPE.vocab_size <= 400
    with pytest.raises(ValueError, match="vocab_size is 100"):
        BPETokenizer.train(CORPUS, 100)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install \"polyhal\[llm\]\""):
        BPETokenizer.train(CORPUS)


def test_damaged_files() -> None:
    with pytest.raises(CorruptFileError, match="not valid JSON"):
        load_tokenizer(CHARACTERS.to_json()[:-5])
    with pytest.raises(CorruptFileError, match="JSON list"):
        load_tokenizer("[]")
    with pytest.raises(CorruptFileError, match="lacks a list of characters"):
        load_tokenizer(json.dumps({"type": "characters"}))
    with pytest.raises(CorruptFileError, match="the model is missing"):
        load_tokenizer(json.dumps({"type": "bpe", "tokenizer": {"model": 1}}))
    with pytest.raises(IncompatibleFileError, match="type 'words'"):
        load_tokenizer('{"type": "words"}')
    with pytest.raises(ValueError, match="distinct"):
        CharTokenizer(["a", "a"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("continuing_subword_prefix", "x" * 9),  # the library aborts at words that are shorter
        ("end_of_word_suffix", "x"),
        (
            "vocab",
            {"<pad>": 0, "<|endoftext|>": 1, "a": 2**32 - 1},
        ),  # it takes memory for each number up to the largest
        ("vocab", {}),
        ("type", "WordPiece"),
        ("merges", None),
    ],
)
def test_tokenizers_that_their_library_does_not_survive(name: str, value: object) -> None:
    data = json.loads(BPE.to_json())
    data["tokenizer"]["model"][name] = value
    with pytest.raises(CorruptFileError, match="BPETokenizer"):
        load_tokenizer(json.dumps(data))
