"""Interfaces of the model and the generator that a server runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from polyhal.generation import GenerationRequest, TokenConstraint, TokenLogprob
from polyhal.text import Tokenizer


class GeneratedTokens(Protocol):
    """Tokens of a request as they are computed."""

    tokens: list[int]
    logprobs: list[TokenLogprob]
    prompt_logprobs: list[TokenLogprob]
    error: BaseException | None
    proposed: int
    """Number of tokens that speculative decoding proposed."""
    accepted: int
    """Number of proposed tokens in the text."""
    finish_reason: str
    """Empty while more tokens may follow, then "stop", "length", "cancelled" or "error"."""

    def cancel(self) -> None:
        """End the request."""


class TextGenerator(Protocol):
    """Generates tokens of several requests at a time. One thread calls it."""

    slots: int
    """Number of requests that run at a time."""

    @property
    def is_idle(self) -> bool:
        """True if no request waits or runs."""

    def submit(self, request: GenerationRequest) -> GeneratedTokens:
        """Queue a request, to which the generator adds the model's stop tokens."""

    def step(self) -> None:
        """Advance all requests. An error ends all of them."""


class ServedModel(Protocol):
    """A language model as a server needs it."""

    name: str
    context: int
    """Maximum number of tokens of a prompt and its answer."""
    tokenizer: Tokenizer
    defaults: Mapping[str, float]
    """Sampling options of requests that do not state them."""

    @property
    def device_memory(self) -> int:
        """Bytes in use on the model's device."""

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text."""

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> list[int]:
        """Return the tokens of a conversation with the beginning of the answer."""

    def constraint(self, kind: str, value: Any) -> TokenConstraint:
        """Compile a constraint of answers: "json_schema", "regex", "lark" or "choices", or "tools" for a call of one of them.

        Raises ConstraintError, also if the model cannot constrain answers.
        """

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return a vector per text."""
