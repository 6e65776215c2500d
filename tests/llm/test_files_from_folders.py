"""GGUF files written from folders: logits of transformers, ids of tokenizers, and refusals by name."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[llm]'")

import gguf
import tokenizers

import polyhal as ph
from polyhal.hal.errors import IncompatibleFileError
from polyhal.llm import load, open_model, quantize
from polyhal.text import PretrainedTokenizer, gguf_from_tokenizer, tokenizer_from_gguf
from tests.models.architectures.cases import chosen, inputs, weights
from tests.models.architectures.comparison import LIMIT
from tests.models.architectures.comparison import load as expected

from .small_models import TEMPLATE

REFUSED = {
    "Qwen 2 with experts": "shared_size, layers without experts",
    "Gemma 2": "attention_scale",
    "Gemma 3": "attention_scale",
    "SmolLM 3": "layers_without_rotary",
    "DeepSeek V3": "rope_scaling",
}
"""Settings of small configurations that the architecture's files cannot state: readers derive them from other sizes."""
CORPUS = "It was the best of times, it was the worst of times. 12345 isn't 日本 😀\n\tif x:  return\n" * 9


def write_folder(path: Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    """Write a folder without a tokenizer."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    ph.save({k: ph.tensor(x, device="numpy") for k, x in tensors.items()}, path / "model.safetensors")
    return path


def case_folder(path: Path, name: str) -> Path:
    """Write the folder of a case of docs/decoders.md."""
    case = expected()[name]
    return write_folder(path, case.config, {k: weights(k, s) for k, s in case.shapes.items()})


@pytest.mark.parametrize("name", sorted(expected()))
def test_files_of_every_architecture_give_the_logits_of_transformers(tmp_path: Path, name: str) -> None:
    source, target = case_folder(tmp_path / "model", name), tmp_path / "model.gguf"
    if name in REFUSED:
        with pytest.raises(IncompatibleFileError, match=f"cannot state {REFUSED[name]} of"):
            quantize(source, target, "f32")
        assert not target.exists()
        return
    notes = quantize(source, target, "f32")
    assert notes[-1] == "no vocabulary: the folder has no tokenizer.json"
    ids, mask = (ph.tensor(x, device="numpy") for x in inputs())
    model = load(target, "numpy").model
    case = expected()[name]
    if len(notes) == 1:
        got = chosen(model(ids, attention_mask=mask).numpy())
        assert np.abs(got - np.array(case.logits)).max() <= LIMIT * case.largest
    else:  # a window of 4 becomes a context of 4, which is exact within it
        assert "context 4" in notes[0]
        assert np.abs(model(ids[:1, :1]).numpy()[0, 0, :4] - case.logits[0]).max() <= LIMIT * case.largest


def byte_level(pattern: str | None) -> Any:
    """Train a byte-level tokenizer that cuts texts by an expression, or as GPT-2's does."""
    pre, made = tokenizers.pre_tokenizers, tokenizers.Tokenizer(tokenizers.models.BPE())
    steps = [] if pattern is None else [pre.Split(tokenizers.Regex(pattern), "isolated")]
    made.pre_tokenizer = pre.Sequence([*steps, pre.ByteLevel(add_prefix_space=False, use_regex=pattern is None)])
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = pre.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<|end|>", "<|begin|>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator([CORPUS], trainer)
    made.add_tokens(["<tool>"])
    return made


def with_characters() -> Any:
    """Train a tokenizer of SentencePiece's form: characters, bytes for others, and a mark for spaces."""
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    steps = tokenizers.normalizers
    made.normalizer = steps.Sequence([steps.Prepend("\u2581"), steps.Replace(" ", "\u2581")])
    part = tokenizers.decoders
    made.decoder = part.Sequence([part.Replace("\u2581", " "), part.ByteFallback(), part.Fuse(), part.Strip(" ", 1, 0)])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, max_token_length=8, show_progress=False
    )
    made.train_from_iterator([CORPUS], trainer)
    data = json.loads(made.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    return tokenizers.Tokenizer.from_str(json.dumps(data))


Kind = namedtuple("Kind", "made model pre")
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@pytest.mark.parametrize(
    "kind",
    [
        Kind(lambda: byte_level(None), "gpt2", "gpt-2"),
        Kind(lambda: byte_level(LLAMA3), "gpt2", "dbrx"),
        Kind(with_characters, "llama", None),
    ],
    ids=["gpt-2", "llama 3", "characters"],
)
def test_vocabularies_and_templates_are_read_back(tmp_path: Path, kind: Any) -> None:
    made = kind.made()
    ends = ("<|begin|>", "<|end|>") if kind.model == "gpt2" else ("<s>", "</s>")
    case = expected()["Llama"]
    tensors = {k: weights(k, (512, 32) if s[0] == 48 else s) for k, s in case.shapes.items()}
    source = write_folder(tmp_path / "model", {**case.config, "vocab_size": 512}, tensors)
    made.save(str(source / "tokenizer.json"))
    settings = {"bos_token": ends[0], "eos_token": ends[1], "add_bos_token": True, "chat_template": TEMPLATE}
    (source / "tokenizer_config.json").write_text(json.dumps(settings))
    (source / "generation_config.json").write_text(json.dumps({"eos_token_id": [made.token_to_id(ends[1]), 5]}))
    target = tmp_path / "model.gguf"
    assert not quantize(source, target, "q4_k_m")
    files = open_model(target)
    assert files.chat_templates == {"default": TEMPLATE}
    assert files.generation == {"eos_token_id": [made.token_to_id(ends[1]), 5]}
    ours, theirs = files.load_tokenizer(), open_model(source).load_tokenizer()
    for text in (CORPUS, "<tool> Größe  x", "\u4e00 a\n\n b"):
        assert ours.encode(text, add_bos=True) == theirs.encode(text, add_bos=True)
        assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text))
    assert ours.encode(ends[1], recognise_special=True) == [made.token_to_id(ends[1])]
    assert ours.vocab_size == 512
    fields = gguf.GGUFReader(target).fields
    assert fields["tokenizer.ggml.model"].contents() == kind.model
    assert kind.pre is None or fields["tokenizer.ggml.pre"].contents() == kind.pre


def test_tokenizers_of_other_kinds_are_refused_by_name() -> None:
    made = byte_level(r"\w+|\W+")
    with pytest.raises(IncompatibleFileError, match="no rule of GGUF files cuts texts"):
        gguf_from_tokenizer(PretrainedTokenizer(json.loads(made.to_str())), 400)
    made = byte_level(None)
    metadata = gguf_from_tokenizer(PretrainedTokenizer(json.loads(made.to_str())), 400)
    assert tokenizer_from_gguf(metadata).encode("12 times") == made.encode("12 times").ids
    with pytest.raises(IncompatibleFileError, match="tokens; expected at most 300"):
        gguf_from_tokenizer(PretrainedTokenizer(json.loads(made.to_str())), 300)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "<unk>": 1}, "<unk>"))
    with pytest.raises(IncompatibleFileError, match="kind WordLevel"):
        gguf_from_tokenizer(PretrainedTokenizer(json.loads(words.to_str())), 300)


def test_nothing_remains_of_a_file_that_is_not_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = case_folder(tmp_path / "model", "Llama"), tmp_path / "out" / "model.gguf"

    def stop(done: int, count: int, name: str) -> None:
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(source, target, "q8_0", stop)
    assert not list(target.parent.iterdir())
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(1, 1, 999))
    with pytest.raises(OSError, match=r"needs .* KiB, and its disk has 1.0 KiB"):
        quantize(source, target, "q8_0")
    assert not list(target.parent.iterdir())
