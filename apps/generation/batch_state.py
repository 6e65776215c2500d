"""The state of a batch in device memory: operands of the captured step for each sequence, and the choice of tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
_LOWEST = -1e30
"""Logit of tokens that a bias excludes, if a constraint allows no others."""


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
    width: int = 0
    """Number of proposed tokens per sequence that the step checks."""
    constrained: bool = False
    """True if the allowed tokens of each position are stored."""


class Chosen(NamedTuple):
    """Results of a step with W proposals."""

    tokens: Tensor
    """Tokens (B, W + 1), int32: at the first positions equal to the proposals, then one other, then invalid ones."""
    kept: Tensor | None
    """Number of proposals (B,), int32, that are kept; None without any."""
    measures: Tensor | None
    """Rows of `measured` (B, W + 1, ...)."""


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
        self.words = -(-vocabulary // 32)
        """Words of a row of bits with one bit per token."""
        self._vocabulary = ph.arange(0, vocabulary, 1, dtypes.int32, device=device)
        self._shape = (slots, vocabulary)
        self._parameters = np.zeros((len(_FLOATS), slots), np.float32)
        self._top_k = np.zeros(slots, np.int32)
        self._seeds = np.zeros((slots, 2), np.int32)
        self._active = np.zeros(slots, np.int32)
        self._proposals: dict[int, Tensor] = {}
        self._proposed = ph.zeros((slots,), dtypes.int32, device)
        self._allowed: dict[int, Tensor] = {}
        bits = (1 << np.arange(32, dtype=np.uint32)).view(np.int32)
        self._bits = Tensor(bits, device=device)
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

    def propose(self, proposals: dict[int, list[int]], width: int) -> None:
        """Store proposed tokens, at most `width` per slot, for the next step."""
        ids, counts = np.zeros((self._shape[0], width), np.int32), np.zeros(self._shape[0], np.int32)
        for i, tokens in proposals.items():
            ids[i, : len(tokens)] = tokens
            counts[i] = len(tokens)
        self._proposals[width] = _stored(self._proposals.get(width), ids, self.ids.device)
        _store(self._proposed, counts)

    def allow(self, rows: np.ndarray) -> None:
        """Store the tokens that are allowed at each position of the next step: bits (B, W + 1, words), uint32."""
        width = rows.shape[1] - 1
        self._allowed[width] = _stored(self._allowed.get(width), rows.view(np.int32), self.ids.device)

    def variant(self, requests: Sequence[GenerationRequest], width: int = 0, constrained: bool = False) -> StepVariant:
        """Return the parts that a step needs for some requests."""
        parameters = [request.sampling for request in requests]
        wanted = [request.logprobs for request in requests if request.logprobs is not None]
        return StepVariant(
            any(p.draws for p in parameters),
            any(p.penalizes for p in parameters),
            self.bias is not None,
            self.seen is not None,
            computed_alternatives(max(wanted), self._shape[1]) if wanted else None,
            width,
            constrained,
        )

    def inputs(self, variant: StepVariant) -> Tensor:
        """Return the tokens (B, W + 1) that a step reads: the last one of each sequence, and proposals."""
        return ph.cat([self.ids, self._proposals[variant.width]], 1) if variant.width else self.ids

    def choose(self, logits: Tensor, variant: StepVariant) -> Chosen:
        """Choose tokens from logits (B, W + 1, V), and store the last ones for the next step; a part of the captured step."""
        rows, count, size = logits.shape
        own = ph.reshape(logits, (rows * count, size)).to(dtypes.float32)
        adjusted = self._adjusted(own, variant)
        if variant.constrained:
            allowed = ph.bitwise_and(ph.unsqueeze(self._allowed[variant.width], -1), self._bits)
            allowed = ph.reshape(ph.not_equal(allowed, 0), (rows * count, -1))[:, :size]
            adjusted = ph.where(allowed, ph.maximum(adjusted, _LOWEST), -np.inf)
        flat = self._drawn(adjusted, variant, ph.arange(0, count, 1, dtypes.int32, device=own.device))
        tokens = ph.reshape(flat, (rows, count))
        measures = None
        if variant.alternatives is not None:
            measures = ph.reshape(measured(own, flat, variant.alternatives), (rows, count, -1))
        kept = self._kept(tokens, variant.width) if variant.width else None
        self._count(tokens, kept)
        if variant.draws:
            self.counters.add_(self.active if kept is None else (kept + 1) * self.active)
        last = tokens if kept is None else ph.take_along_axis(tokens, ph.reshape(kept, (rows, 1)).to(dtypes.int64), 1)
        self.ids.copy_(last)
        return Chosen(tokens, kept, measures)

    def draw(self, logits: Tensor, variant: StepVariant, offset: int) -> Tensor:
        """Draw tokens (B, 1) from logits (B, V) of another model with the random numbers of `offset` tokens ahead."""
        size = min(logits.shape[1], self._shape[1])  # vocabularies of some models are padded
        logits = logits[:, :size].to(dtypes.float32)
        if self.bias is not None:
            logits = logits + self.bias[:, :size]
        ahead = ph.full((1,), offset, dtypes.int32, logits.device)
        return ph.reshape(self._drawn(logits, variant, ahead), (-1, 1))

    def _adjusted(self, logits: Tensor, variant: StepVariant) -> Tensor:
        """Return logits (B * (W + 1), V) with penalties and bias."""
        count = variant.width + 1
        if variant.penalizes and self.seen is not None and self.generated is not None:
            seen, generated = (_repeated(x, count) for x in (self.seen, self.generated))
            if variant.width:
                earlier = self._earlier(variant.width)
                seen, generated = seen + earlier, generated + earlier
            logits = F.penalize(logits, seen, generated, *(_repeated(self.floats[i], count) for i in range(4, 7)))
        return logits if self.bias is None else logits + _repeated(self.bias, count)

    def _earlier(self, width: int) -> Tensor:
        """Return how often each token (B * (W + 1), V) occurs among the proposals before each position."""
        ids = self._proposals[width]
        here = ph.equal(ph.unsqueeze(ids, -1), self._vocabulary).to(dtypes.int32)
        counts = ph.cumsum(here, 1).to(dtypes.int32)
        return ph.reshape(ph.cat([ph.zeros_like(counts[:, :1]), counts], 1), (-1, self._shape[1]))

    def _drawn(self, logits: Tensor, variant: StepVariant, ahead: Tensor) -> Tensor:
        """Return tokens (B * T,) from logits (B * T, V), where `ahead` (T,) are numbers of tokens since the last one."""
        if not variant.draws:
            return ph.argmax(logits, 1).to(dtypes.int32)
        count = ahead.shape[0]
        temperature, top_p, min_p, typical_p = (_repeated(self.floats[i], count) for i in range(4))
        top_k, seeds = _repeated(self.top_k, count), _repeated(self.seeds, count)
        counters = ph.reshape(ph.unsqueeze(self.counters, 1) + ahead, (-1,))
        return F.sample_tokens(logits, temperature, top_k, top_p, min_p, typical_p, seeds, counters)

    def _kept(self, tokens: Tensor, width: int) -> Tensor:
        """Return how many proposals (B,) equal the chosen tokens (B, W + 1), up to the first one that differs."""
        places = ph.arange(0, width, 1, dtypes.int32, device=tokens.device)
        is_equal = ph.equal(tokens[:, :width], self._proposals[width]) & ph.less(
            places, ph.unsqueeze(self._proposed, 1)
        )
        return ph.sum(ph.cumprod(is_equal.to(dtypes.int32), 1), 1).to(dtypes.int32)

    def _count(self, tokens: Tensor, kept: Tensor | None) -> None:
        """Count the chosen tokens for penalties."""
        if self.seen is None or self.generated is None:
            return
        here = ph.equal(ph.unsqueeze(tokens, -1), self._vocabulary).to(dtypes.int32)
        valid = ph.reshape(self.active, (-1, 1, 1))
        if kept is not None:
            places = ph.arange(0, tokens.shape[1], 1, dtypes.int32, device=tokens.device)
            valid = valid * ph.unsqueeze(ph.less_equal(places, ph.unsqueeze(kept, 1)).to(dtypes.int32), -1)
        counts = ph.sum(here * valid, 1).to(dtypes.int32)
        self.seen.add_(counts)
        self.generated.add_(counts)

    def _set_parameters(self, i: int, parameters: SamplingParameters) -> None:
        self._parameters[:, i] = [getattr(parameters, name) for name in _FLOATS]
        self._top_k[i] = parameters.top_k
        seed = int.from_bytes(os.urandom(8), "little") >> 1 if parameters.seed is None else parameters.seed
        self._seeds[i] = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32).view(np.int32)


def _repeated(x: Tensor, count: int) -> Tensor:
    """Return each row of x (B, ...) `count` times: (B * count, ...)."""
    if count == 1:
        return x
    rest = tuple(x.shape[1:])
    return ph.reshape(ph.broadcast_to(ph.unsqueeze(x, 1), (x.shape[0], count, *rest)), (x.shape[0] * count, *rest))


def _store(target: Tensor, values: np.ndarray) -> None:
    target.copy_(Tensor(values.copy(), device=target.device))


def _stored(target: Tensor | None, values: np.ndarray, device: ph.Device) -> Tensor:
    """Return `target`, or a new tensor, with other values. Captured steps need the same tensor each time."""
    if target is None:
        return Tensor(values.copy(), device=device)
    _store(target, values)
    return target
