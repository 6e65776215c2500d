"""Requests for text, and the streams of their tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from polyhal.generation.sampling import SamplingParameters
from polyhal.hal.errors import message


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Up to `max_tokens` tokens after a prompt of token ids; a token in `stop_ids` ends the text and is not part of it.

    If the context is full, the text ends, or with `slide` continues without the older half of the context.
    """

    prompt: Sequence[int]
    max_tokens: int
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    stop_ids: frozenset[int] = frozenset()
    slide: bool = False

    def __post_init__(self) -> None:
        if not len(self.prompt):
            raise ValueError(message("generate", "the prompt is empty", expected="at least one token"))


class TokenStream:
    """Iterates over the tokens of a request as they are read back. `cancel` ends it early.

    `finish_reason` is "stop" after a stop token, "length" after `max_tokens` tokens or a full context, "cancelled", or empty
    while more tokens may follow.
    """

    def __init__(self, request: GenerationRequest, pump: Callable[[], None]) -> None:
        self.request = request
        self.finish_reason = ""
        self.tokens: list[int] = []
        """All tokens so far."""
        self._unread: deque[int] = deque()
        self._pump = pump
        self._error: BaseException | None = None

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        while not self._unread:
            if self._error is not None:
                raise self._error
            if self.finish_reason:
                raise StopIteration
            self._pump()
        return self._unread.popleft()

    def cancel(self) -> None:
        """End the stream; its place in the batch is free from the next step on."""
        self.finish_reason = self.finish_reason or "cancelled"

    def add(self, token: int) -> None:
        """Append a token."""
        self.tokens.append(token)
        self._unread.append(token)

    def finish(self, reason: str, error: BaseException | None = None) -> None:
        """Mark the stream as complete, or as failed with an error that the next read raises."""
        self.finish_reason = self.finish_reason or reason
        self._error = error
