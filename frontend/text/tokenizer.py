"""What all tokenizers have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message

PAD = "<pad>"
UNKNOWN = "<unk>"


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token numbers and back."""

    pad_id: int
    """Fills up short sequences; `decode` leaves it out."""

    @property
    def vocab_size(self) -> int:
        """How many token numbers there are."""

    def encode(self, text: str, max_len: int | None = None) -> list[int]:
        """Token numbers of `text`, cut or padded to `max_len` if that is given."""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token numbers. Raises ValueError for numbers outside the vocabulary."""

    def to_json(self) -> str:
        """The tokenizer as JSON text, for `load_tokenizer`."""


def fit(ids: Sequence[int], max_len: int | None, pad_id: int) -> list[int]:
    """`ids` cut or padded to `max_len`. Raises ValueError for a negative length."""
    if max_len is None:
        return list(ids)
    if max_len < 0:
        raise ValueError(message("encode", f"max_len is {max_len}", expected="0 or more"))
    return [*ids[:max_len], *[pad_id] * (max_len - len(ids))]


def load_tokenizer(text: str) -> Tokenizer:
    """The tokenizer that `to_json` wrote as `text`. Raises CorruptFileError and IncompatibleFileError."""
    from polyhal.text.bpe import BPETokenizer
    from polyhal.text.characters import CharTokenizer

    kind = parse(text).get("type")
    if kind == CharTokenizer.kind:
        return CharTokenizer.from_json(text)
    if kind == BPETokenizer.kind:
        return BPETokenizer.from_json(text)
    raise IncompatibleFileError(
        message("load_tokenizer", f"type {kind!r}", expected=f"{CharTokenizer.kind} or {BPETokenizer.kind}")
    )


def parse(text: str) -> dict[str, Any]:
    """The JSON object in `text`. Raises CorruptFileError."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise CorruptFileError(
            message("load_tokenizer", f"not JSON: {error}", expected="text that to_json wrote")
        ) from error
    if not isinstance(data, dict):
        raise CorruptFileError(
            message("load_tokenizer", f"a JSON {type(data).__name__}", expected="an object that to_json wrote")
        )
    return data
