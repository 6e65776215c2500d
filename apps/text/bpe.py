"""Byte-level byte-pair encoding, through the `tokenizers` library.

Source: Sennrich et al., arXiv:1508.07909; on bytes: Radford et al., 2019. Every text can be encoded and is decoded unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from polyhal.hal.errors import CorruptFileError, message
from polyhal.text.library import library
from polyhal.text.tokenizer import PAD, fit, parse

END = "<|endoftext|>"


def _unexpected(data: Any) -> str:
    """Describe the first difference from the form of `to_json`; empty if there is none.

    For some other data the library aborts the process or allocates any amount of memory.
    """
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        return "the model is missing"
    model = data["model"]
    vocabulary, merges = model.get("vocab"), model.get("merges")
    steps = [
        data[name].get("type") if isinstance(data.get(name), dict) else None for name in ("pre_tokenizer", "decoder")
    ]
    if model.get("type") != "BPE" or steps != ["ByteLevel"] * 2:
        return "it is not a byte-level BPE"
    absent = [data.get(name) for name in ("normalizer", "post_processor", "truncation", "padding")]
    absent += [model.get(name) for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout", "unk_token")]
    if any(value is not None and value != "" for value in absent):
        return "it has steps that this tokenizer does not support"
    if not isinstance(vocabulary, dict) or sorted(map(str, vocabulary.values())) != sorted(
        map(str, range(len(vocabulary)))
    ):
        return "token ids are not 0, 1, 2, ..."
    if vocabulary.get(PAD) != 0 or vocabulary.get(END) != 1 or not isinstance(merges, list):
        return "special tokens or merges are missing"
    added = data.get("added_tokens")
    special = [(x.get("id"), x.get("content")) for x in added if isinstance(x, dict)] if isinstance(added, list) else []
    return "" if special == [(0, PAD), (1, END)] else "added tokens differ"


class BPETokenizer:
    """Frequent sequences of bytes as tokens: `<pad>` (0), `<|endoftext|>` (1), the 256 bytes, then learned tokens.

    Special tokens can only be added by id: their names in a text are ordinary text.
    """

    kind = "bpe"
    pad_id = 0
    end_id = 1

    def __init__(self, tokenizer: Any) -> None:
        tokenizer.encode_special_tokens = True  # names of special tokens in a text are ordinary text
        self._tokenizer = tokenizer

    @classmethod
    def train(cls, text: str | Iterable[str], vocab_size: int = 1024, min_frequency: int = 2) -> BPETokenizer:
        """Learn up to `vocab_size` tokens from one or several texts.

        Raises ValueError, and ImportError without the library.
        """
        smallest = 256 + 2
        if vocab_size < smallest:
            raise ValueError(
                message("BPETokenizer", f"vocab_size is {vocab_size}", expected=f"{smallest} (all bytes) or more")
            )
        tokenizers = library("BPETokenizer")
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=[PAD, END],
            initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        # The trainer counts words per item: one long item would be in memory twice.
        lines = text.splitlines(keepends=True) if isinstance(text, str) else text
        tokenizer.train_from_iterator(lines, trainer)
        return cls(tokenizer)

    @property
    def vocab_size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    @property
    def vocabulary(self) -> list[str]:
        """Text of each token, with bytes as the library's printable characters."""
        ids: dict[str, int] = self._tokenizer.get_vocab()
        return sorted(ids, key=ids.__getitem__)

    def encode(self, text: str, max_len: int | None = None) -> list[int]:
        """Encode `text` as token ids, truncated or padded to `max_len` if given."""
        return fit(self._tokenizer.encode(text).ids, max_len, self.pad_id)

    def decode(self, ids: Iterable[int]) -> str:
        """Decode token ids without special tokens; bytes that are not valid UTF-8 become U+FFFD.

        Raises ValueError.
        """
        numbers = [int(i) for i in ids]
        size = self.vocab_size
        for i in numbers:
            if not 0 <= i < size:
                raise ValueError(message("decode", f"token {i}", expected=f"0 to {size - 1}"))
        text: str = self._tokenizer.decode(numbers, skip_special_tokens=True)
        return text

    def to_json(self) -> str:
        """Return the vocabulary and merges as JSON text."""
        return json.dumps({"type": self.kind, "version": 1, "tokenizer": json.loads(self._tokenizer.to_str())})

    @classmethod
    def from_json(cls, text: str) -> BPETokenizer:
        """Load a tokenizer of `to_json`. Raises CorruptFileError, and ImportError without the library."""
        tokenizers = library("BPETokenizer")
        data = parse(text).get("tokenizer")
        problem = _unexpected(data)
        if problem:
            raise CorruptFileError(message("BPETokenizer", problem, expected="text that to_json wrote"))
        try:
            return cls(tokenizers.Tokenizer.from_str(json.dumps(data)))
        # The library raises plain Exception for text that it cannot read.
        except Exception as error:
            raise CorruptFileError(
                message("BPETokenizer", f"the library cannot read it: {error}", expected="text that to_json wrote")
            ) from error

    def __repr__(self) -> str:
        return f"BPETokenizer({self.vocab_size} tokens)"
