"""Generation for requests that join and leave a running batch (continuous batching)."""

from __future__ import annotations

from collections import deque
from threading import RLock

import numpy as np

from polyhal import Tensor, jit
from polyhal.generation.batch_state import BatchState, Chosen, StepVariant
from polyhal.generation.constraint import ConstraintError, constrain
from polyhal.generation.launched import LaunchedStep
from polyhal.generation.logprobs import TokenLogprob, computed_alternatives, measured, read_row
from polyhal.generation.model import GeneratingModel, evaluating
from polyhal.generation.pace import WIDTHS
from polyhal.generation.prompts import CHUNK, PromptReader
from polyhal.generation.proposals import Proposer, most_proposals, step_width
from polyhal.generation.request import GenerationRequest, TokenStream
from polyhal.generation.slots import SequenceSlot
from polyhal.hal.errors import message

WORTH_CAPTURING = 100
"""Minimum number of tokens of an engine for which recording a step is faster."""
_IN_FLIGHT = 2
"""Launched steps whose tokens are not read back: one runs while the host handles the tokens of the one before."""
_MOST_VARIANTS = 64
"""Graphs of the step that are kept: more than a server's requests bring about by their options."""
_MEASURED_CHUNK = 64
"""Tokens of a prompt per step if log-probabilities of all of them are computed, which takes their logits' memory."""


class GenerationEngine:
    """Generates tokens for up to `slots` requests at a time; further ones wait.

    All sequences advance by one captured step per token. Tokens stay on the device between steps and are read back while the
    next step runs. A request whose prompt begins like the text of a free slot reuses that part of the slot's cache. At
    temperature 0 a request receives the same tokens whatever others are in the batch. Threads may share an engine.

    Tokens of a `proposer`, and tokens that a constraint forces, are checked several at a time; see `proposals`. Steps with
    proposals or constraints depend on all earlier tokens, so that each waits for the one before.
    """

    def __init__(
        self, model: GeneratingModel, slots: int = 1, captured: bool = True, proposer: Proposer | None = None
    ) -> None:
        self.model = model
        self.cache = model.make_cache(slots)
        self.capacity = min(self.cache.capacity, model.context_length)
        self._prompts = PromptReader(model, self.cache, captured)
        self._slots = [SequenceSlot(i) for i in range(slots)]
        self._waiting: deque[TokenStream] = deque()
        self._launched: deque[LaunchedStep] = deque()
        self._state: BatchState | None = None
        self._step = jit(self._decode, warm_up=False, max_graphs=_MOST_VARIANTS) if captured else self._decode
        self._lock = RLock()
        self._steps = 0
        self._proposer = proposer
        self._most = most_proposals(slots)

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
        """Advance all requests: a part of a prompt, tokens of each sequence, and the delivery of earlier tokens."""
        with self._lock, evaluating(self.model):
            try:
                self._release_finished()
                self._admit()
                self._prefill()
                waits = any(self._depends_on_text(slot) for slot in self._slots if slot.is_decoding)
                while waits and self._launched:
                    self._deliver()
                decoding = [slot for slot in self._slots if slot.is_decoding]
                if decoding:
                    self._launch(decoding)
                if len(self._launched) >= (1 if waits else _IN_FLIGHT) or (self._launched and not decoding):
                    self._deliver()
            except BaseException as error:
                self._fail(error)
                raise

    def _depends_on_text(self, slot: SequenceSlot) -> bool:
        """Return whether the next step of a slot depends on all of its tokens."""
        return slot.constraint is not None or (self._proposer is not None and slot.pace.proposes)

    def _release_finished(self) -> None:
        for slot in self._slots:
            if slot.stream is not None and slot.stream.finish_reason:
                slot.release()
        self._waiting = deque(stream for stream in self._waiting if not stream.finish_reason)

    def _admit(self) -> None:
        """Give free slots to waiting requests: the one with the longest common prefix, else the one unused for longest."""
        while self._waiting and (free := [slot for slot in self._slots if slot.stream is None]):
            stream = self._waiting.popleft()
            ids = [int(i) for i in stream.request.prompt]
            slot = max(free, key=lambda s: (s.common_prefix(ids), -s.used))
            slot.begin(stream, ids, stream.request.max_tokens)
            if self._state is not None:
                self._state.join(slot, stream.request.sampling, ids)

    def _prefill(self) -> None:
        """Process a part of each prompt that is not in the cache."""
        for slot in self._slots:
            if slot.stream is None or slot.stream.finish_reason or slot.prefilled:
                continue
            missing = len(slot.ids) - 1 - slot.filled
            if missing:
                self._process(slot, min(missing, _MEASURED_CHUNK if slot.is_measured else CHUNK))
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
        """Add tokens to the cache of a slot."""
        begin, end = slot.filled, slot.filled + count
        logits = self._prompts.read(slot.index, slot.ids[begin:end], begin, not slot.is_measured)
        slot.filled = end
        if slot.stream is not None and slot.is_measured:
            wanted = slot.stream.request.logprobs or 0
            following = Tensor(np.array(slot.ids[begin + 1 : end + 1], np.int32), device=self.model.device)
            rows = measured(logits[0], following, computed_alternatives(wanted, logits.shape[-1])).numpy()
            slot.stream.prompt_logprobs += [read_row(row, wanted) for row in rows]

    def _make_state(self, slot: SequenceSlot) -> None:
        """Make the tensors of the batch, once the size of the vocabulary is known from logits."""
        logits = self._prompts.read(slot.index, slot.ids[-1:], slot.filled)
        self._state = BatchState(len(self._slots), logits.shape[-1], self.model.device)
        self.cache.active = self._state.active
        for other in self._slots:
            if other.stream is not None:
                self._state.join(other, other.stream.request.sampling, [int(i) for i in other.stream.request.prompt])

    def _launch(self, decoding: list[SequenceSlot]) -> None:
        """Launch a step of the batch, and the copy of its tokens to the host."""
        assert self._state is not None
        proposals, forced, constrained = self._proposals(decoding)
        decoding = [slot for slot in decoding if slot.is_decoding]
        if not decoding:
            return
        width = step_width(proposals)
        self._state.activate(self._slots)
        if width:
            self._state.propose(proposals, width)
        if constrained is not None:
            self._state.allow(constrained[:, : width + 1])
        self.cache.length = max(slot.filled for slot in decoding)
        streams = [slot.stream for slot in decoding if slot.stream is not None]
        requests = [stream.request for stream in streams]
        chosen = self._step(self._state.variant(requests, width, constrained is not None))
        self._launched.append(LaunchedStep(list(zip(decoding, streams, strict=True)), chosen, proposals, forced))
        self._steps += 1
        for slot in decoding:
            slot.fill(1, self.capacity)
            slot.used = self._steps

    def _proposals(self, decoding: list[SequenceSlot]) -> tuple[dict[int, list[int]], set[int], np.ndarray | None]:
        """Return proposals by slot, the slots whose proposals are forced, and bits of allowed tokens.

        Without constraints there are no bits. A slot whose constraint fails ends.
        """
        assert self._state is not None
        room = min(self._most, *(self.capacity - 1 - slot.filled for slot in decoding))
        most = max(width for width in WIDTHS if width <= room)
        wanted = {}
        for slot in decoding:
            if self._proposer is None or not slot.pace.proposes:
                slot.pace.skip()
            else:
                wanted[slot.index] = max(min(slot.pace.length, most, slot.remaining - 1), 0)
        found: dict[int, list[int]] = {}
        if self._proposer is not None and any(wanted.values()):
            found = self._proposer.propose(wanted, self._slots, self._state)
        proposals = {slot.index: found.get(slot.index, []) for slot in decoding}
        forced: set[int] = set()
        if all(slot.constraint is None for slot in decoding):
            return proposals, forced, None
        rows = np.full((len(self._slots), most + 1, self._state.words), 0xFFFFFFFF, np.uint32)
        for slot in decoding:
            if slot.constraint is not None and slot.stream is not None:
                i = slot.index
                try:
                    proposals[i], is_forced = constrain(slot.constraint, proposals[i], rows[i])
                    forced |= {i} if is_forced else set()
                except ConstraintError as error:
                    slot.stream.finish("error", error)
                    slot.release()
                    del proposals[i]
        return proposals, forced, rows

    def _decode(self, variant: StepVariant) -> Chosen:
        assert self._state is not None
        logits = self.model(self._state.inputs(variant), self.cache, last_only=not variant.width)
        chosen = self._state.choose(logits, variant)
        if chosen.kept is not None:  # the model advanced by all proposals
            self.cache.lengths.add_((chosen.kept - variant.width) * self._state.active)
        return chosen

    def _deliver(self) -> None:
        """Wait for the tokens of the oldest step, and hand them to their streams."""
        step = self._launched.popleft()
        for slot, stream in step.members:
            if slot.stream is not stream or stream.finish_reason:
                continue
            tokens = step.tokens(slot, stream)
            kept = len(tokens) - 1
            slot.fill(kept, self.capacity)
            if self._proposer is not None and not step.is_forced(slot):
                slot.pace.record(step.proposed(slot), kept)
                stream.proposed += step.proposed(slot)
                stream.accepted += kept
            for token, logprob in tokens:
                if not self._append(slot, stream, token, logprob):
                    break

    def _append(self, slot: SequenceSlot, stream: TokenStream, token: int, logprob: TokenLogprob | None) -> bool:
        """Add a token to the text of a slot, and return whether the text goes on."""
        slot.ids.append(token)
        if token in stream.request.stop_ids:
            stream.finish("stop")
        else:
            stream.add(token, logprob)
            if slot.constraint is not None and not slot.constraint.accept(token):
                problem = f"token {token} after {len(stream.tokens) - 1} others is outside of the constraint"
                stream.finish("error", ConstraintError(message("generate", problem)))
            elif slot.constraint is not None and slot.constraint.is_complete:
                stream.finish("stop")
            elif len(stream.tokens) >= stream.request.max_tokens:
                stream.finish("length")
            elif slot.filled >= self.capacity and len(slot.ids) > slot.filled:
                self._continue_full(slot, stream)
        if stream.finish_reason:
            slot.release()
        return not stream.finish_reason

    def _continue_full(self, slot: SequenceSlot, stream: TokenStream) -> None:
        """Drop the older half of a full context, or end the stream."""
        if not stream.request.slide:
            stream.finish("length")
            return
        ids = slot.ids[-max(self.capacity // 2, 1) :]
        slot.filled = 0
        slot.begin(stream, ids, stream.request.max_tokens - len(stream.tokens))

    def _fail(self, error: BaseException) -> None:
        for stream in (*self._waiting, *(slot.stream for slot in self._slots if slot.stream is not None)):
            stream.finish("error", error)
        self._waiting.clear()
        self._launched.clear()
        for slot in self._slots:
            slot.release()
            slot.ids, slot.filled = [], 0
