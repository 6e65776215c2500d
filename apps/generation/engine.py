"""Generation for requests that join and leave a running batch (continuous batching)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, Protocol

import numpy as np

from polyhal import Device, Tensor, jit, no_grad
from polyhal.generation.batch_state import BatchState, StepVariant
from polyhal.generation.launched import LaunchedStep
from polyhal.generation.logprobs import TokenLogprob, computed_alternatives, measured, read_row
from polyhal.generation.request import GenerationRequest, TokenStream
from polyhal.generation.slots import SequenceSlot
from polyhal.hal.errors import message
from polyhal.nn import KVCache

WORTH_CAPTURING = 100
"""Minimum number of tokens of an engine for which recording a step is faster."""
_IN_FLIGHT = 2
"""Launched steps whose tokens are not read back: one runs while the host handles the tokens of the one before."""
_MOST_VARIANTS = 64
"""Graphs of the step that are kept: more than a server's requests bring about by their options."""
_CHUNK = 512
"""Tokens of a prompt per step, so that a long prompt does not hold up the sequences that are decoding."""
_MEASURED_CHUNK = 64
"""Tokens of a prompt per step if log-probabilities of all of them are computed, which takes their logits' memory."""


class GeneratingModel(Protocol):
    """Interface of language models for generation."""

    training: bool

    @property
    def context_length(self) -> int:
        """Maximum number of tokens in the context."""

    @property
    def device(self) -> Device:
        """Device of the weights."""

    def __call__(self, ids: Tensor, cache: KVCache | None = None, last_only: bool = False) -> Any:
        """Return logits (B, T, V) of tokens (B, T), or (B, 1, V) of the last ones; with a cache, `ids` continue it."""

    def make_cache(self, batch: int = 1) -> KVCache:
        """Make an empty cache for `context_length` tokens."""

    def train(self, mode: bool = True) -> Any:
        """Set training mode, or evaluation mode."""


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Set a model to evaluation mode and disable the tape, in the block."""
    training = model.training
    if training:
        model.train(False)
    try:
        with no_grad():
            yield
    finally:
        if training:
            model.train()


class GenerationEngine:
    """Generates tokens for up to `slots` requests at a time; further ones wait.

    All sequences advance by one captured step per token. Tokens stay on the device between steps and are read back while the
    next step runs. A request whose prompt begins like the text of a free slot reuses that part of the slot's cache. At
    temperature 0 a request receives the same tokens whatever others are in the batch. Threads may share an engine.
    """

    def __init__(self, model: GeneratingModel, slots: int = 1, captured: bool = True) -> None:
        self.model = model
        self.cache = model.make_cache(slots)
        self.capacity = min(self.cache.capacity, model.context_length)
        self._slots = [SequenceSlot(i) for i in range(slots)]
        self._waiting: deque[TokenStream] = deque()
        self._launched: deque[LaunchedStep] = deque()
        self._state: BatchState | None = None
        self._step = jit(self._decode, warm_up=False, max_graphs=_MOST_VARIANTS) if captured else self._decode
        self._lock = RLock()
        self._steps = 0

    def submit(self, request: GenerationRequest) -> TokenStream:
        """Queue a request. Its stream computes tokens when it is read. Raises ValueError for a prompt beyond the context."""
        if len(request.prompt) > self.capacity:
            problem, expected = f"a prompt of {len(request.prompt)} tokens", f"at most {self.capacity}, the context"
            raise ValueError(message("generate", problem, expected=expected))
        stream = TokenStream(request, self.step)
        if request.max_tokens < 1 and not request.prompt_logprobs:
            stream.finish("length")
        else:
            with self._lock:
                self._waiting.append(stream)
        return stream

    @property
    def is_idle(self) -> bool:
        """True if no request waits or runs."""
        return not (self._waiting or self._launched or any(slot.stream for slot in self._slots))

    def step(self) -> None:
        """Advance all requests: a part of a prompt, a token of each sequence, and the delivery of earlier tokens."""
        with self._lock, evaluating(self.model):
            try:
                self._release_cancelled()
                self._admit()
                self._prefill()
                decoding = [slot for slot in self._slots if slot.is_decoding]
                if decoding:
                    self._launch(decoding)
                if len(self._launched) >= _IN_FLIGHT or (self._launched and not decoding):
                    self._deliver()
            except BaseException as error:
                self._fail(error)
                raise

    def _release_cancelled(self) -> None:
        for slot in self._slots:
            if slot.stream is not None and slot.stream.finish_reason:
                slot.stream = None
        self._waiting = deque(stream for stream in self._waiting if not stream.finish_reason)

    def _admit(self) -> None:
        """Give free slots to waiting requests: the one with the longest common prefix, else the one unused for longest."""
        while self._waiting and (free := [slot for slot in self._slots if slot.stream is None]):
            stream = self._waiting.popleft()
            ids = [int(i) for i in stream.request.prompt]
            slot = max(free, key=lambda s: (s.common_prefix(ids), -s.used))
            self._begin(slot, stream, ids, stream.request.max_tokens)
            if self._state is not None:
                self._state.join(slot, stream.request.sampling, ids)

    def _begin(self, slot: SequenceSlot, stream: TokenStream, ids: list[int], tokens: int) -> None:
        """Make a slot continue `ids`. All of them but the last one are to be in its cache first."""
        kept = min(slot.common_prefix(ids), len(ids) - 1)
        slot.stream, slot.ids, slot.remaining, slot.prefilled = stream, ids, tokens, False
        slot.filled = 0 if slot.is_measured else kept

    def _prefill(self) -> None:
        """Process a part of each prompt that is not in the cache."""
        for slot in self._slots:
            if slot.stream is None or slot.prefilled:
                continue
            missing = len(slot.ids) - 1 - slot.filled
            if missing:
                self._process(slot, min(missing, _MEASURED_CHUNK if slot.is_measured else _CHUNK))
            if slot.filled == len(slot.ids) - 1:
                if self._state is None:
                    self._make_state(slot)
                assert self._state is not None
                self.cache.lengths[slot.index : slot.index + 1].fill_(slot.filled)
                self._state.continue_from(slot, slot.ids[-1])
                slot.prefilled = True
                if slot.remaining < 1:
                    slot.stream.finish("length")

    def _process(self, slot: SequenceSlot, count: int) -> None:
        """Add tokens to the cache of a slot, padded to few different lengths; what padding writes is overwritten later."""
        padded = 1 << (count - 1).bit_length()
        if slot.filled + padded > self.capacity:
            padded = count
        ids = np.zeros((1, padded), np.int32)
        ids[0, :count] = slot.ids[slot.filled : slot.filled + count]
        part = self.cache.sequence(slot.index, slot.filled)
        logits = self.model(Tensor(ids, device=self.model.device), part, last_only=not slot.is_measured)
        if slot.stream is not None and slot.is_measured:
            self._measure_prompt(slot.stream, logits[0, :count], slot.ids[slot.filled + 1 : slot.filled + 1 + count])
        slot.filled += count

    def _measure_prompt(self, stream: TokenStream, logits: Tensor, tokens: list[int]) -> None:
        wanted = stream.request.logprobs or 0
        ids = Tensor(np.array(tokens, np.int32), device=self.model.device)
        rows = measured(logits, ids, computed_alternatives(wanted, logits.shape[-1])).numpy()
        stream.prompt_logprobs += [read_row(row, wanted) for row in rows]

    def _make_state(self, slot: SequenceSlot) -> None:
        """Make the tensors of the batch, once the size of the vocabulary is known from logits."""
        part = self.cache.sequence(slot.index, slot.filled)
        ids = Tensor(np.array([slot.ids[-1:]], np.int32), device=self.model.device)
        vocabulary = self.model(ids, part, last_only=True).shape[-1]
        self._state = BatchState(len(self._slots), vocabulary, self.model.device)
        self.cache.active = self._state.active
        for other in self._slots:
            if other.stream is not None:
                self._state.join(other, other.stream.request.sampling, [int(i) for i in other.stream.request.prompt])

    def _launch(self, decoding: list[SequenceSlot]) -> None:
        """Launch a step of the batch, and the copy of its tokens to the host."""
        assert self._state is not None
        self._state.activate(self._slots)
        self.cache.length = max(slot.filled for slot in decoding)
        streams = [slot.stream for slot in decoding if slot.stream is not None]
        tokens, measures = self._step(self._state.variant([stream.request for stream in streams]))
        members = list(zip(decoding, streams, strict=True))
        self._launched.append(LaunchedStep(members, tokens, measures))
        self._steps += 1
        for slot in decoding:
            slot.filled += 1
            slot.remaining = slot.remaining - 1 if slot.filled < self.capacity else 0
            slot.used = self._steps

    def _decode(self, variant: StepVariant) -> tuple[Tensor, Tensor | None]:
        assert self._state is not None
        logits = self.model(self._state.ids, self.cache, last_only=True)
        return self._state.choose(logits[:, -1], variant)

    def _deliver(self) -> None:
        """Wait for the tokens of the oldest step, and hand them to their streams."""
        step = self._launched.popleft()
        for slot, stream in step.members:
            if not stream.finish_reason and slot.stream is stream:
                self._append(slot, stream, *step.token(slot, stream))

    def _append(self, slot: SequenceSlot, stream: TokenStream, token: int, logprob: TokenLogprob | None) -> None:
        """Add a token to the text of a slot, which may end there."""
        slot.ids.append(token)
        if token in stream.request.stop_ids:
            stream.finish("stop")
        else:
            stream.add(token, logprob)
            if len(stream.tokens) >= stream.request.max_tokens:
                stream.finish("length")
            elif slot.filled >= self.capacity and len(slot.ids) > slot.filled:
                self._continue_full(slot, stream)
        if stream.finish_reason:
            slot.stream = None

    def _continue_full(self, slot: SequenceSlot, stream: TokenStream) -> None:
        """Drop the older half of a full context, or end the stream."""
        if not stream.request.slide:
            stream.finish("length")
            return
        ids = slot.ids[-max(self.capacity // 2, 1) :]
        slot.filled = 0
        self._begin(slot, stream, ids, stream.request.max_tokens - len(stream.tokens))

    def _fail(self, error: BaseException) -> None:
        for stream in (*self._waiting, *(slot.stream for slot in self._slots if slot.stream is not None)):
            stream.finish("error", error)
        self._waiting.clear()
        self._launched.clear()
        for slot in self._slots:
            slot.stream, slot.ids, slot.filled = None, [], 0
