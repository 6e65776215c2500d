"""The protocol of tokenizers, and loading any of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.utils.files import parse_json

PAD = "<pad>"
UNKNOWN = "<unk>"


@runtime_checkable
class Tokenizer(Protocol):
    """Converts text to token ids and back."""

    pad_id: int
    """Id that pads short sequences; `decode` skips it."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""

    def encode(self, text: str, max_len: int | None = None) -> list[int]:
        """Encode `text` as token ids, truncated or padded to `max_len` if given."""

    def decode(self, ids: Iterable[int]) -> str:
        """Decode token ids. Raises ValueError for ids outside of the vocabulary."""

    def to_json(self) -> str:
        """Return the tokenizer as JSON text, for `load_tokenizer`."""


def without_text(tokenizer: Tokenizer) -> list[int]:
    """Return the tokens without text: padding, and the token of unknown characters if the tokenizer has one."""
    unknown = getattr(tokenizer, "unknown_id", None)
    return [tokenizer.pad_id] if unknown is None else [tokenizer.pad_id, unknown]


def fit(ids: Sequence[int], max_len: int | None, pad_id: int) -> list[int]:
    """Truncate or pad `ids` to `max_len`. Raises ValueError for a negative length."""
    if max_len is None:
        return list(ids)
    if max_len < 0:
        raise ValueError(message("encode", f"max_len is {max_len}", expected="0 or more"))
    return [*ids[:max_len], *[pad_id] * (max_len - len(ids))]


def load_tokenizer(text: str) -> Tokenizer:
    """Load a tokenizer from the text of `to_json`. Raises CorruptFileError and IncompatibleFileError."""
    from polyhal.text.bpe import BPETokenizer
    from polyhal.text.characters import CharTokenizer
    from polyhal.text.pretrained import PretrainedTokenizer

    kind = parse(text).get("type")
    if kind == CharTokenizer.kind:
        return CharTokenizer.from_json(text)
    if kind == BPETokenizer.kind:
        return BPETokenizer.from_json(text)
    if kind == PretrainedTokenizer.kind:
        return PretrainedTokenizer.from_json(text)
    kinds = f"{CharTokenizer.kind}, {BPETokenizer.kind} or {PretrainedTokenizer.kind}"
    raise IncompatibleFileError(message("load_tokenizer", f"type {kind!r}", expected=kinds))


def text_of(path: Path) -> str:
    """Read a text file. Raises CorruptFileError if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFileError(message("text_of", f"{path} is not UTF-8: {error}")) from error


def parse(text: str) -> dict[str, Any]:
    """Parse `text` as a JSON object. Raises CorruptFileError."""
    data = parse_json(text, "the tokenizer")
    if not isinstance(data, dict):
        raise CorruptFileError(
            message("load_tokenizer", f"a JSON {type(data).__name__}", expected="an object that to_json wrote")
        )
    return data
