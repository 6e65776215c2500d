"""The state of a batch in device memory: what the captured step reads of each sequence, and how it chooses tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import polyhal as ph
from polyhal import Tensor
from polyhal.generation.logprobs import computed_alternatives, measured
from polyhal.generation.request import GenerationRequest
from polyhal.generation.sampling import SamplingParameters
from polyhal.generation.slots import SequenceSlot
from polyhal.hal import dtypes
from polyhal.nn import functional as F

_FLOATS = ("temperature", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
_NEUTRAL = SamplingParameters(temperature=0.0)


@dataclass(frozen=True, slots=True)
class StepVariant:
    """The parts of a step that its sequences need. Each variant is a captured graph of its own."""

    draws: bool = False
    penalizes: bool = False
    biased: bool = False
    counted: bool = False
    """True if tokens are counted for penalties of this step or a later one."""
    alternatives: int | None = None
    """Number of most likely tokens that are returned with their log-probabilities; None for no log-probabilities."""


class BatchState:
    """Tensors of all slots: the last token, sampling parameters, and counts of tokens that penalties read."""

    def __init__(self, slots: int, vocabulary: int, device: ph.Device) -> None:
        self.ids = ph.zeros((slots, 1), dtypes.int32, device)
        self.active = ph.zeros((slots,), dtypes.int32, device)
        self.floats = ph.zeros((len(_FLOATS), slots), dtypes.float32, device)
        self.top_k = ph.zeros((slots,), dtypes.int32, device)
        self.seeds = ph.zeros((slots, 2), dtypes.int32, device)
        self.counters = ph.zeros((slots,), dtypes.int32, device)
        self.bias: Tensor | None = None
        self.seen: Tensor | None = None
        self.generated: Tensor | None = None
        self._vocabulary = ph.arange(0, vocabulary, 1, dtypes.int32, device=device)
        self._shape = (slots, vocabulary)
        self._parameters = np.zeros((len(_FLOATS), slots), np.float32)
        self._top_k = np.zeros(slots, np.int32)
        self._seeds = np.zeros((slots, 2), np.int32)
        self._active = np.zeros(slots, np.int32)
        for i in range(slots):
            self._set_parameters(i, _NEUTRAL)

    def activate(self, slots: Sequence[SequenceSlot]) -> None:
        """Store which slots compute a token in the next steps, if that changed."""
        active = np.array([slot.is_decoding for slot in slots], np.int32)
        if not np.array_equal(active, self._active):
            self._active = active
            _store(self.active, active)

    def join(self, slot: SequenceSlot, parameters: SamplingParameters, prompt: list[int]) -> None:
        """Store the parameters of a new sequence."""
        i = slot.index
        self._set_parameters(i, parameters)
        _store(self.floats, self._parameters)
        _store(self.top_k, self._top_k)
        _store(self.seeds, self._seeds)
        self.counters[i : i + 1].fill_(0)
        if parameters.logit_bias and self.bias is None:
            self.bias = ph.zeros(self._shape, dtypes.float32, self.ids.device)
        if self.bias is not None:
            row = np.zeros((1, self._shape[1]), np.float32)
            for token, value in parameters.logit_bias.items():
                row[0, token] = value
            _store(self.bias[i : i + 1], row)
        if parameters.penalizes and self.seen is None:
            self.seen, self.generated = (ph.zeros(self._shape, dtypes.int32, self.ids.device) for _ in range(2))
        if self.seen is not None and self.generated is not None:
            counts = np.bincount(prompt, minlength=self._shape[1]).astype(np.int32)[None, : self._shape[1]]
            _store(self.seen[i : i + 1], counts)
            self.generated[i : i + 1].fill_(0)

    def continue_from(self, slot: SequenceSlot, token: int) -> None:
        """Store the token that the next step of a slot reads."""
        self.ids[slot.index : slot.index + 1].fill_(token)

    def variant(self, requests: Sequence[GenerationRequest]) -> StepVariant:
        """Return the parts that a step needs for some requests."""
        parameters = [request.sampling for request in requests]
        wanted = [request.logprobs for request in requests if request.logprobs is not None]
        return StepVariant(
            any(p.draws for p in parameters),
            any(p.penalizes for p in parameters),
            self.bias is not None,
            self.seen is not None,
            computed_alternatives(max(wanted), self._shape[1]) if wanted else None,
        )

    def choose(self, logits: Tensor, variant: StepVariant) -> tuple[Tensor, Tensor | None]:
        """Choose the next tokens from logits (B, V), and store them for the next step; a part of the captured step.

        Returns the tokens (B, 1) and their rows of `measured`.
        """
        own = logits = logits.to(dtypes.float32)
        temperature, top_p, min_p, typical_p, repetition, presence, frequency = (self.floats[i] for i in range(7))
        if variant.penalizes and self.seen is not None and self.generated is not None:
            logits = F.penalize(logits, self.seen, self.generated, repetition, presence, frequency)
        if self.bias is not None:
            logits = logits + self.bias
        if variant.draws:
            tokens = F.sample_tokens(
                logits, temperature, self.top_k, top_p, min_p, typical_p, self.seeds, self.counters
            )
        else:
            tokens = ph.argmax(logits, 1).to(dtypes.int32)
        tokens = ph.reshape(tokens, (-1, 1))
        if self.seen is not None and self.generated is not None:
            here = ph.equal(self._vocabulary, tokens).to(dtypes.int32) * ph.reshape(self.active, (-1, 1))
            self.seen.add_(here)
            self.generated.add_(here)
        self.counters.add_(self.active)
        self.ids.copy_(tokens)
        return tokens, None if variant.alternatives is None else measured(own, tokens, variant.alternatives)

    def _set_parameters(self, i: int, parameters: SamplingParameters) -> None:
        self._parameters[:, i] = [getattr(parameters, name) for name in _FLOATS]
        self._top_k[i] = parameters.top_k
        seed = int.from_bytes(os.urandom(8), "little") >> 1 if parameters.seed is None else parameters.seed
        self._seeds[i] = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32).view(np.int32)


def _store(target: Tensor, values: np.ndarray) -> None:
    target.copy_(Tensor(values.copy(), device=target.device))
