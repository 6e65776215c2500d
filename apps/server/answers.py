"""Answers as text: tokens of the model's thread, decoded and ended by stop strings."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from polyhal.generation import ConstraintError, GenerationRequest, TokenConstraint, TokenLogprob
from polyhal.llm import ToolCall, ToolCallFilter
from polyhal.server.errors import RequestError
from polyhal.server.interfaces import ServedModel
from polyhal.server.metrics import ServerMetrics
from polyhal.server.options import Options
from polyhal.server.stop_strings import StopFilter
from polyhal.server.worker import Job, ModelThread, TokenDelivery
from polyhal.text import IncrementalDecoder, Tokenizer


class MeasuredToken(NamedTuple):
    """A token, the place of its text in the answer, and its log-probability; None for the first token of a prompt."""

    token: int
    offset: int
    logprob: TokenLogprob | None


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the text of a choice, and how the choice ended, if it did."""

    index: int
    text: str
    finish_reason: str = ""
    measured: tuple[MeasuredToken, ...] = ()
    """Tokens whose text begins in this part, if log-probabilities are requested."""
    calls: tuple[ToolCall, ...] = ()
    """Calls of tools at the end of the answer."""


class _Choice:
    """The text of one choice."""

    def __init__(self, job: Job, tokenizer: Tokenizer, options: Options, continues: bool) -> None:
        prompt = job.request.prompt
        self.job, self._filter = job, StopFilter(options.stops)
        self._decoder = IncrementalDecoder(tokenizer, prompt if continues else ())
        self._tokenizer, self._echoed = tokenizer, options.echo
        self._written = self._decoded = 0
        self._measured: deque[MeasuredToken] = deque()
        self._calls = ToolCallFilter(options.tools) if options.tools else None
        self.tokens = 0
        self.finish_reason = ""

    def add(self, delivery: TokenDelivery) -> Piece:
        """Decode new tokens, up to a stop string."""
        parts = []
        if self._echoed:
            self._echoed = False
            parts.append(self._echo(delivery.prompt_logprobs))
        for i, token in enumerate(delivery.tokens):
            self.tokens += 1
            text = self._decoder.push(token)
            if delivery.logprobs:
                self._measured.append(MeasuredToken(token, self._decoded, delivery.logprobs[i]))
            self._decoded += len(text)
            parts.append(self._filter.push(text))
            if self._filter.stopped:
                break
        if delivery.finish_reason and not self._filter.stopped:
            parts.append(self._filter.push(self._decoder.finish()))
            parts.append(self._filter.finish())
        self.finish_reason = "stop" if self._filter.stopped else delivery.finish_reason
        text, calls = "".join(parts), tuple[ToolCall, ...]()
        self._written += len(text)
        is_whole = bool(self.finish_reason) and not self._filter.stopped
        certain = []
        while self._measured and (is_whole or self._measured[0].offset < self._written):
            certain.append(self._measured.popleft())
        if self._calls is not None:
            text = self._calls.push(text)
            if self.finish_reason:
                rest, found = self._calls.finish()
                text, calls = text + rest, tuple(found)
                self.finish_reason = "tool_calls" if calls else self.finish_reason
        return Piece(self.job.index, text, self.finish_reason, tuple(certain), calls)

    def _echo(self, logprobs: list[TokenLogprob]) -> str:
        """Return the text of the prompt, and note its tokens if they are measured."""
        decoder, parts = IncrementalDecoder(self._tokenizer), []
        prompt = [int(i) for i in self.job.request.prompt]
        for i, token in enumerate(prompt):
            if self.job.request.prompt_logprobs:
                self._measured.append(MeasuredToken(token, self._decoded, logprobs[i - 1] if i else None))
            parts.append(decoder.push(token))
            self._decoded += len(parts[-1])
        parts.append(decoder.finish())
        self._decoded += len(parts[-1])
        return "".join(parts)


class Answer:
    """The choices of a request: `n` for each prompt. Pieces of them come in the order in which they are computed."""

    def __init__(
        self,
        thread: ModelThread,
        model: ServedModel,
        metrics: ServerMetrics,
        prompts: list[list[int]],
        options: Options,
        constraint: TokenConstraint | None,
        continues: bool,
    ) -> None:
        """Queue the request. Raises RequestError if too many wait. `continues` tells texts from answers to a chat."""
        self._thread, self._metrics = thread, metrics
        self._queue: asyncio.Queue[TokenDelivery] = asyncio.Queue()
        self.prompt_tokens = sum(map(len, prompts))
        loop = asyncio.get_running_loop()
        self._choices: list[_Choice] = []
        seed = options.sampling.seed
        for i, prompt in enumerate(p for p in prompts for _ in range(options.n)):
            room = model.context - len(prompt)
            count = room if options.max_tokens is None else min(options.max_tokens, room)
            sampling = options.sampling
            if seed is not None:  # choices of one prompt differ
                sampling = replace(sampling, seed=(seed + i % options.n) % 2**63)
            is_measured = options.echo and options.logprobs is not None
            request = GenerationRequest(
                prompt,
                count,
                sampling,
                logprobs=options.logprobs,
                prompt_logprobs=is_measured,
                constraint=constraint,
            )
            self._choices.append(_Choice(Job(i, request, self._queue, loop), model.tokenizer, options, continues))
        thread.submit([choice.job for choice in self._choices], max(1, round(metrics.mean_seconds)))
        metrics.prompt_tokens += self.prompt_tokens
        self._begin = time.monotonic()

    @property
    def count(self) -> int:
        """Number of choices."""
        return len(self._choices)

    @property
    def generated_tokens(self) -> int:
        """Number of tokens that were generated so far."""
        return sum(choice.tokens for choice in self._choices)

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the texts of all choices. Raises RequestError if the model fails."""
        running = len(self._choices)
        while running:
            delivery = await self._queue.get()
            choice = self._choices[delivery.index]
            if choice.finish_reason:
                continue
            if delivery.finish_reason == "error":
                raise as_request_error(delivery.error or RuntimeError("no reason was reported"))
            is_first = not choice.tokens
            piece = choice.add(delivery)
            self._measure(choice, is_first and bool(delivery.tokens))
            if piece.finish_reason:
                self._metrics.proposed_tokens += delivery.proposed
                self._metrics.accepted_tokens += delivery.accepted
            if piece.finish_reason:
                running -= 1
                self._thread.cancel(choice.job)
            if piece.text or piece.measured or piece.finish_reason:
                yield piece

    def close(self) -> None:
        """Cancel the choices that are not finished."""
        for choice in self._choices:
            if not choice.finish_reason:
                choice.finish_reason = "cancelled"
                self._metrics.cancelled += 1
                self._thread.cancel(choice.job)

    def _measure(self, choice: _Choice, is_first: bool) -> None:
        seconds = time.monotonic() - self._begin
        if is_first:
            self._metrics.first_tokens += 1
            self._metrics.first_token_seconds += seconds
        if choice.finish_reason:
            self._metrics.finished += 1
            self._metrics.seconds += seconds
            self._metrics.generated_tokens += choice.tokens


def as_request_error(error: BaseException) -> RequestError:
    """Return an error of the model as the error of a request."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, ConstraintError):  # a grammar that exceeds limits after some tokens
        return RequestError(str(error), code="invalid_grammar")
    return RequestError(f"the model failed: {type(error).__name__}: {str(error)[:500]}", status=500, code="model_error")
