"""The tokenizer of pages against the library tokenizers, in a browser: vocabularies of bytes, and of characters with bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polyhal import export
from tests.export.chromium import PROGRAM, Chromium
from tests.export.steps import TrainingStep

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium; Debian, Ubuntu: apt install chromium"),
]
_TEXTS = [
    "A kernel is a function that a device runs.",
    "  two  spaces, tabs\tand\nlines\n\n  end ",
    "It's we'll they've 12345 + 6.78 = x_y",
    "Größe, naïve, 東京 and 🙂🙃 e\u0301",
    "",
]
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    browser = Chromium()
    try:
        browser.open(export.webgpu(TrainingStep().step, tmp_path_factory.mktemp("page") / "page.html"))
        browser.wait_for("window.polyhal || document.querySelector('#status.error')")
        yield browser
    finally:
        browser.close()


def _trained(form: str) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    models, splits = tokenizers.models, tokenizers.pre_tokenizers
    corpus = [p.read_text(encoding="utf-8") for p in sorted((Path(__file__).parents[2] / "docs").glob("s*.md"))]
    if form == "characters":
        made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
        made.normalizer = tokenizers.normalizers.Sequence(
            [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
        )
        alphabet = ["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(256))]
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=700, special_tokens=alphabet)
    else:
        made = tokenizers.Tokenizer(models.BPE())
        cut = splits.ByteLevel(add_prefix_space=False, use_regex=form == "gpt2")
        regex = splits.Split(tokenizers.Regex(_LLAMA3), "isolated")
        made.pre_tokenizer = cut if form == "gpt2" else splits.Sequence([regex, cut])
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=700, special_tokens=["<s>"], initial_alphabet=splits.ByteLevel.alphabet()
        )
    made.train_from_iterator(corpus, trainer)
    return made


@pytest.mark.parametrize("form", ["gpt2", "llama3", "characters"])
def test_ids_and_texts_are_those_of_the_library(page: Chromium, form: str) -> None:
    library = _trained(form)
    data = json.loads(library.to_str())
    if form == "characters":  # bytes are ordinary tokens: they have texts
        data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
        library = type(library).from_str(json.dumps(data))
    found = page.evaluate(
        f"""import("polyhal/tokenizer").then(({{Tokenizer}}) => {{
            const tokenizer = new Tokenizer({json.dumps(data)});
            return {json.dumps(_TEXTS)}.map((text) => {{
                const [ids, next] = [tokenizer.encode(text), tokenizer.stream()];
                return [ids, ids.map((id) => next(id)).join("")];
            }});
        }})"""
    )
    for text, (ids, decoded) in zip(_TEXTS, found, strict=True):
        assert ids == library.encode(text, add_special_tokens=False).ids, text
        assert decoded == text


def test_other_forms_are_refused(page: Chromium) -> None:
    made = 'new Tokenizer({model: {type: "Unigram"}})'
    found = page.evaluate(f'import("polyhal/tokenizer").then(({{Tokenizer}}) => {made}).catch((e) => e.message)')
    assert found == "pages do not support this tokenizer: model Unigram; encode the text in Python"
