"""Tokenizers of pretrained models: ids by other implementations, streams, special tokens, and hostile files."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError
from polyhal.text import BPETokenizer, PretrainedTokenizer, decode_stream, load_tokenizer, tokenizer_from_gguf

pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[llm]'")

CORPUS = "It was the best of times, it was the worst of times. Ünïcödé 日本 😀 12345\n\tif x:  return x'll\n" * 9
TEXTS = [
    CORPUS[:200],
    "",
    " ",
    "  two  spaces ",
    "new\n\n\nlines",
    "<s> is text",
    "日本語 🏳️‍🌈",
    "\x00e\u0301",
    "aaaaaaa",
]


def sentencepiece_metadata() -> dict[str, Any]:
    """A vocabulary of pieces of the corpus, with random scores and bytes."""
    text = CORPUS.replace(" ", "\u2581")
    starts = np.random.default_rng(0).integers(0, len(text) - 8, (400, 2))
    pieces = dict.fromkeys([*sorted(set(text)), *(text[a : a + 2 + b % 5] for a, b in starts)])
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *pieces, "<mark>"]
    types = [2, 3, 3, *[6] * 256, *[1] * len(pieces), 4]
    scores = np.random.default_rng(1).permutation(len(tokens)).astype(float)
    names = ("model", "tokens", "token_type", "scores")
    return {f"tokenizer.ggml.{n}": v for n, v in zip(names, ("llama", tokens, types, list(-scores)), strict=True)}


def sentencepiece_ids(metadata: dict[str, Any], text: str) -> list[int]:
    """Join the best pair of neighbours, the leftmost of equals, until none is a token; then cut unknown pieces into bytes."""
    tokens: Sequence[str] = metadata["tokenizer.ggml.tokens"]
    ids = {t: i for i, t in enumerate(tokens) if metadata["tokenizer.ggml.token_type"][i] == 1}
    pieces = list("\u2581" + text.replace(" ", "\u2581")) if text else []
    while True:
        pairs = [(a + b, i) for i, (a, b) in enumerate(itertools.pairwise(pieces)) if a + b in ids]
        if not pairs:
            break
        _, i = max(pairs, key=lambda p: (metadata["tokenizer.ggml.scores"][ids[p[0]]], -p[1]))
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return [k for p in pieces for k in ([ids[p]] if p in ids else [3 + byte for byte in p.encode()])]


def test_sentencepiece_vocabularies_give_the_ids_of_the_definition() -> None:
    metadata = sentencepiece_metadata()
    tokenizer = tokenizer_from_gguf(metadata)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == sentencepiece_ids(metadata, text)
        assert tokenizer.decode(ids) == text
        assert "".join(decode_stream(tokenizer, ids)) == text
    assert tokenizer.encode("<s>", add_bos=True)[0] == tokenizer.bos_id == 1
    assert tokenizer.encode("<s>", recognise_special=True) == [1]
    assert tokenizer.encode("a<mark>")[-1] == tokenizer.id_of("<mark>")
    again = load_tokenizer(tokenizer.to_json())
    assert again.encode(CORPUS) == tokenizer.encode(CORPUS)
    with pytest.raises(ValueError, match="token -1"):
        tokenizer.decode([-1])


def test_byte_level_vocabularies_give_the_ids_of_their_tokenizer() -> None:
    trained = BPETokenizer.train(CORPUS, 350)
    data = json.loads(trained.to_json())["tokenizer"]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": trained.vocabulary,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (trained.vocab_size - 2)],
        "tokenizer.ggml.merges": [" ".join(m) if isinstance(m, list) else m for m in data["model"]["merges"]],
    }
    from_gguf, from_json = tokenizer_from_gguf(metadata), PretrainedTokenizer(data)
    for text in TEXTS:
        assert from_gguf.encode(text) == from_json.encode(text) == trained.encode(text)
        assert "".join(decode_stream(from_gguf, from_gguf.encode(text))) == text
    for name in ("llama-bpe", "qwen2", "default", "smollm", "deepseek-v3", "gpt-4o", "tekken", "deepseek-coder"):
        tokenizer = tokenizer_from_gguf({**metadata, "tokenizer.ggml.pre": name})
        assert [tokenizer.decode(tokenizer.encode(text)) for text in TEXTS] == TEXTS
    digits = [
        len(tokenizer_from_gguf({**metadata, "tokenizer.ggml.pre": n}).encode("7" * 9)) for n in ("qwen2", "gpt-2")
    ]
    assert digits == [9, 9]
    with pytest.raises(IncompatibleFileError, match="'unheard-of'"):
        tokenizer_from_gguf({**metadata, "tokenizer.ggml.pre": "unheard-of"})
    with pytest.raises(IncompatibleFileError, match="no vocabulary"):
        tokenizer_from_gguf({"tokenizer.ggml.model": "no_vocab"})


def replaced(**changes: Any) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
    return {"version": "1.0", "added_tokens": [], "model": model, **changes}


def growing(step: dict[str, Any], count: int) -> dict[str, Any]:
    return replaced(normalizer={"type": "Sequence", "normalizers": [step] * count})


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (replaced(model={"type": "BPE", "vocab": {"a": 0, "é": 2**31}, "merges": []}), "token id 2147483648"),
        (
            replaced(model={**replaced()["model"], "merges": [["a", "éé"]], "continuing_subword_prefix": "x"}),
            "does not have the prefix 'x'",
        ),
        (growing({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}, 40), "lengthens texts"),
        (replaced(normalizer={"type": "Precompiled", "precompiled_charsmap": "/////w=="}), "character map"),
        (
            replaced(
                normalizer={
                    "type": "Precompiled",
                    "precompiled_charsmap": base64.b64encode(
                        (1024).to_bytes(4, "little") + np.full(256, 0x7FFFFC00, "<u4").tobytes()
                    ).decode(),
                }
            ),
            "outside of its trie",
        ),
        (replaced(pre_tokenizer={"type": "FixedLength", "length": 0}), "length 0"),
        (replaced(model={"type": "Unigram", "vocab": [["a", -1.0]], "unk_id": 5}), "cannot read it"),
        (
            replaced(
                post_processor={"type": "TemplateProcessing", "single": ["<s>", "$A"], "pair": [], "special_tokens": {}}
            ),
            "cannot read it",
        ),
        (replaced(model=[]), "model is missing"),
    ],
)
def test_files_that_the_library_does_not_survive_are_refused(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(CorruptFileError, match=problem):
        PretrainedTokenizer(data)


def test_padding_of_the_file_is_not_allocated() -> None:
    padding = {"strategy": {"Fixed": 10**10}, "direction": "Right", "pad_to_multiple_of": None}
    tokenizer = PretrainedTokenizer(replaced(padding={**padding, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}))
    assert tokenizer.encode("ab", 3) == [2, 0, 0]
