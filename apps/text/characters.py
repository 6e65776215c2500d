"""One token per character."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from polyhal.hal.errors import CorruptFileError, message
from polyhal.text.tokenizer import PAD, UNKNOWN, fit, parse

_REPLACEMENT = "\ufffd"


class CharTokenizer:
    """Characters of a fixed vocabulary; 0 is `<pad>`, 1 is `<unk>` for every other character.

    Texts of known characters are decoded unchanged. Raises ValueError unless the vocabulary is a set of characters.
    """

    kind = "characters"
    pad_id = 0
    unknown_id = 1

    def __init__(self, characters: Sequence[str]) -> None:
        if any(len(c) != 1 for c in characters) or len(set(characters)) != len(characters):
            raise ValueError(
                message(
                    "CharTokenizer",
                    "the vocabulary is not a set of characters",
                    expected="distinct strings of length 1",
                )
            )
        self.vocabulary: list[str] = [PAD, UNKNOWN, *characters]
        """Text of each token."""
        self._numbers = {c: i for i, c in enumerate(self.vocabulary) if i > self.unknown_id}

    @classmethod
    def train(cls, text: str) -> CharTokenizer:
        """Make a tokenizer for all characters in `text`, in code-point order."""
        return cls(sorted(set(text)))

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str, max_len: int | None = None) -> list[int]:
        """Encode `text` as token ids, truncated or padded to `max_len` if given."""
        numbers, unknown = self._numbers, self.unknown_id
        return fit([numbers.get(c, unknown) for c in text], max_len, self.pad_id)

    def decode(self, ids: Iterable[int]) -> str:
        """Decode token ids without padding; unknown characters become U+FFFD. Raises ValueError."""
        out = []
        for i in ids:
            if not 0 <= i < len(self.vocabulary):
                raise ValueError(message("decode", f"token {i}", expected=f"0 to {len(self.vocabulary) - 1}"))
            if i == self.unknown_id:
                out.append(_REPLACEMENT)
            elif i != self.pad_id:
                out.append(self.vocabulary[i])
        return "".join(out)

    def to_json(self) -> str:
        """Return the vocabulary as JSON text."""
        return json.dumps({"type": self.kind, "version": 1, "characters": self.vocabulary[2:]}, ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str) -> CharTokenizer:
        """Load a tokenizer of `to_json`. Raises CorruptFileError."""
        characters = parse(text).get("characters")
        if not isinstance(characters, list) or not all(isinstance(c, str) for c in characters):
            raise CorruptFileError(
                message("CharTokenizer", "the file lacks a list of characters", expected="text that to_json wrote")
            )
        try:
            return cls(characters)
        except ValueError as error:
            raise CorruptFileError(str(error)) from error

    def __repr__(self) -> str:
        return f"CharTokenizer({self.vocab_size} tokens)"
