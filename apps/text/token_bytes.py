"""The text of single tokens, whose bytes may be a part of a character."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from polyhal.text.tokenizer import Tokenizer

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_BYTE_OF = {chr(b): b for b in _PRINTABLE} | {
    chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in _PRINTABLE)
}
"""Bytes by the characters that encode them in byte-level vocabularies."""


class TokenText(NamedTuple):
    """Text of a token, and its bytes; None if they are unknown.

    A part of a character is written as `bytes:\\xe2\\x82`, and a special token by its name.
    """

    text: str
    data: bytes | None


class TokenTexts:
    """Texts of the tokens of a tokenizer, as they are in the middle of a text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before: Sequence[int] = tokenizer.encode("a")[-1:]
        self._start = len(tokenizer.decode(self._before))
        self._known: dict[int, TokenText] = {}

    def __getitem__(self, token: int) -> TokenText:
        found = self._known.get(token)
        if found is None:
            found = self._known[token] = self._find(token)
        return found

    def _find(self, token: int) -> TokenText:
        text = self._tokenizer.decode([*self._before, token])[self._start :]
        name = getattr(self._tokenizer, "token", lambda _: None)(token)
        if not text and name:
            return TokenText(name, name.encode())
        if "\ufffd" not in text:
            return TokenText(text, text.encode())
        data = _stored_bytes(name) if name else None
        if data is None:
            return TokenText(text, None)
        try:
            return TokenText(data.decode(), data)
        except UnicodeDecodeError:
            return TokenText("bytes:" + "".join(f"\\x{b:02x}" for b in data), data)


def _stored_bytes(name: str) -> bytes | None:
    """Return the bytes of a token by its stored form, in vocabularies with a fallback to bytes or of bytes."""
    if found := _FALLBACK.fullmatch(name):
        return bytes.fromhex(found[1])
    return bytes(_BYTE_OF[c] for c in name) if all(c in _BYTE_OF for c in name) else None
