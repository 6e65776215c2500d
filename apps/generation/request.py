"""Requests for text, and the streams of their tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from polyhal.generation.constraint import TokenConstraint
from polyhal.generation.logprobs import MOST_ALTERNATIVES, TokenLogprob
from polyhal.generation.sampling import SamplingParameters
from polyhal.hal.errors import message


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Up to `max_tokens` tokens after a prompt of token ids; a token in `stop_ids` ends the text and is not part of it.

    If the context is full, the text ends, or with `slide` continues without the older half of the context. `logprobs` is the
    number of most likely tokens whose log-probabilities are returned for each token, with the token's own; None for none at
    all. `prompt_logprobs` adds log-probabilities of the prompt's tokens, which takes a prompt without reuse of its prefix.
    A text that completes its `constraint` ends there.
    """

    prompt: Sequence[int]
    max_tokens: int
    sampling: SamplingParameters = field(default_factory=SamplingParameters)
    stop_ids: frozenset[int] = frozenset()
    slide: bool = False
    logprobs: int | None = None
    prompt_logprobs: bool = False
    constraint: TokenConstraint | None = None

    def __post_init__(self) -> None:
        if not len(self.prompt):
            raise ValueError(message("generate", "the prompt is empty", expected="at least one token"))
        if self.logprobs is not None and not 0 <= self.logprobs <= MOST_ALTERNATIVES:
            expected = f"0 to {MOST_ALTERNATIVES}"
            raise ValueError(message("generate", f"logprobs is {self.logprobs}", expected=expected))


class TokenStream:
    """Iterates over the tokens of a request as they are read back. `cancel` ends it early.

    `finish_reason` is "stop" after a stop token or a complete constraint, "length" after `max_tokens` tokens or a full context,
    "cancelled", "error", or empty
    while more tokens may follow.
    """

    def __init__(self, request: GenerationRequest, pump: Callable[[], None]) -> None:
        self.request = request
        self.finish_reason = ""
        self.tokens: list[int] = []
        """All tokens so far."""
        self.logprobs: list[TokenLogprob] = []
        """Log-probabilities of all tokens so far, if they are requested."""
        self.prompt_logprobs: list[TokenLogprob] = []
        """Log-probabilities of the prompt's tokens but the first one, if they are requested."""
        self.proposed = 0
        """Number of tokens that were proposed by speculative decoding."""
        self.accepted = 0
        """Number of proposed tokens that are a part of the text."""
        self.error: BaseException | None = None
        """The reason if `finish_reason` is "error"."""
        self._unread: deque[int] = deque()
        self._pump = pump

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        while not self._unread:
            if self.error is not None:
                raise self.error
            if self.finish_reason:
                raise StopIteration
            self._pump()
        return self._unread.popleft()

    def cancel(self) -> None:
        """End the stream; its place in the batch is free from the next step on."""
        self.finish_reason = self.finish_reason or "cancelled"

    def add(self, token: int, logprob: TokenLogprob | None = None) -> None:
        """Append a token."""
        if logprob is not None:
            self.logprobs.append(logprob)
        self.tokens.append(token)
        self._unread.append(token)

    def finish(self, reason: str, error: BaseException | None = None) -> None:
        """Mark the stream as complete, or as failed with an error that the next read raises."""
        self.finish_reason = self.finish_reason or reason
        self.error = error
