"""Decoding of streams of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from polyhal.text.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"
_LONGEST_WAIT = 32
"""Maximum number of tokens that are held back because their bytes are not a character yet."""


def decode_stream(tokenizer: Tokenizer, tokens: Iterable[int], before: Iterable[int] = ()) -> Iterator[str]:
    """Yield the text of each token as far as it is decided, and the rest at the end.

    The parts, joined, equal `decode` of all tokens, for valid UTF-8. A character may span several tokens: bytes without their
    last one are held back. Tokens `before` the stream are context: after them SentencePiece's first space is not removed.
    """
    window = list(before)[-_LONGEST_WAIT:]
    written = len(tokenizer.decode(window))
    held = 0
    for token in tokens:
        window.append(token)
        held += 1
        text = tokenizer.decode(window)
        decided = text.rstrip(_REPLACEMENT)
        is_whole = len(decided) == len(text) or held >= _LONGEST_WAIT
        if is_whole:
            decided = text
        if len(decided) > written:
            yield decided[written:]
            written = len(decided)
            if is_whole:  # the last tokens with text are the context of the next
                window = window[-held:]
                written = len(tokenizer.decode(window))
                held = 0
    rest = tokenizer.decode(window)[written:]
    if rest:
        yield rest
