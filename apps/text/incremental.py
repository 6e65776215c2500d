"""Decoding of streams of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from polyhal.text.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"
_LONGEST_WAIT = 32
"""Maximum number of tokens that are held back because their bytes are not a character yet."""


class IncrementalDecoder:
    """Decodes a stream of tokens one at a time.

    The parts, joined, equal `decode` of all tokens, for valid UTF-8. A character may span several tokens: bytes without their
    last one are held back. Tokens `before` the stream are context: after them SentencePiece's first space is not removed.
    """

    def __init__(self, tokenizer: Tokenizer, before: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._window = list(before)[-_LONGEST_WAIT:]
        self._written = len(tokenizer.decode(self._window))
        self._held = 0

    def push(self, token: int) -> str:
        """Add a token, and return the text that it decides."""
        self._window.append(token)
        self._held += 1
        text = self._tokenizer.decode(self._window)
        decided = text.rstrip(_REPLACEMENT)
        is_whole = len(decided) == len(text) or self._held >= _LONGEST_WAIT
        if is_whole:
            decided = text
        part = decided[self._written :]
        if part:
            self._written = len(decided)
            if is_whole:  # the last tokens with text are the context of the next
                self._window = self._window[-self._held :]
                self._written = len(self._tokenizer.decode(self._window))
                self._held = 0
        return part

    def finish(self) -> str:
        """Return the text that is held back at the end of the stream."""
        return self._tokenizer.decode(self._window)[self._written :]


def decode_stream(tokenizer: Tokenizer, tokens: Iterable[int], before: Iterable[int] = ()) -> Iterator[str]:
    """Yield the text of each token as far as it is decided, and the rest at the end, as `IncrementalDecoder` does."""
    decoder = IncrementalDecoder(tokenizer, before)
    for token in tokens:
        if text := decoder.push(token):
            yield text
    if rest := decoder.finish():
        yield rest
