"""Speculative decoding: any proposals leave the text as it is, and good ones save steps of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.generation import DraftProposer, GenerationEngine, GenerationRequest, PromptLookup, SamplingParameters
from polyhal.generation.pace import ProposalPace
from polyhal.models import Decoder, DecoderConfig

GREEDY = SamplingParameters(temperature=0.0)
DRAWN = SamplingParameters(0.8, 12, 0.9, seed=7)
PENALIZED = SamplingParameters(0.8, 0, 0.95, 0.01, 1.0, 1.2, 0.2, 0.1, {3: -np.inf, 4: 1.0}, seed=5)


def _model(layers: int, seed: int = 0, vocabulary: int = 40, context: int = 48) -> Any:
    ph.manual_seed(seed)
    made = Decoder(DecoderConfig(vocabulary, 16, 24, layers, 4, 2, context, initializer_range=0.3), "numpy")
    return made.eval()


@pytest.fixture(scope="module")
def model() -> Any:
    return _model(2)


class _Oracle:
    """Proposes given texts with every fourth token replaced by a wrong one."""

    def __init__(self, texts: list[list[int]]) -> None:
        self.texts = texts

    def propose(self, wanted: Any, slots: Any, state: Any) -> dict[int, list[int]]:
        found = {}
        for i, most in wanted.items():
            (text,) = (t for t in self.texts if t[: len(slots[i].ids)] == slots[i].ids)
            place = len(slots[i].ids)
            found[i] = [(t + (p % 4 == 3)) % 40 for p, t in enumerate(text[place : place + most], place)]
        return found


def _texts(
    model: Any, requests: list[GenerationRequest], proposer: Any = None, slots: int = 3, captured: bool = False
) -> tuple[Any, Any]:
    engine = GenerationEngine(model, slots, captured, proposer)
    streams = [engine.submit(request) for request in requests]
    return [list(stream) for stream in streams], streams


def test_texts_do_not_depend_on_proposals(model: Any) -> None:
    """Greedy and drawn, with penalties, stop tokens, log-probabilities and a full context, in one batch."""
    prompts = [[1, 2, 3], [4] * 9, [9, 8, 7, 6], list(range(20)), [5, 6] * 8]
    settings = [GREEDY, DRAWN, PENALIZED, GREEDY, DRAWN]
    requests = [
        GenerationRequest(p, 14 if i else 200, s, logprobs=1 if i == 1 else None)
        for i, (p, s) in enumerate(zip(prompts, settings, strict=True))
    ]
    alone, streams = _texts(model, requests)
    stop = alone[3][11]
    requests[3] = GenerationRequest(prompts[3], 14, GREEDY, frozenset({stop}))
    alone[3] = alone[3][: alone[3].index(stop)]
    assert streams[0].finish_reason == "length"
    whole = [prompt + text + [0] * 8 for prompt, text in zip(prompts, alone, strict=True)]
    proposers = (_Oracle(whole), PromptLookup(), *(DraftProposer(m, 3, False) for m in (_model(1, 5), model)))
    for proposer in proposers:
        texts, found = _texts(model, requests, proposer)
        assert texts == alone
        assert [s.finish_reason for s in found] == ["length"] * 3 + ["stop", "length"]
        measured = [row.logprob for row in streams[1].logprobs]
        np.testing.assert_allclose([row.logprob for row in found[1].logprobs], measured, rtol=0, atol=2e-5)
        share = sum(s.accepted for s in found) / sum(s.proposed for s in found)
        if proposer is proposers[0]:
            assert 0.4 < share < 0.8
        if proposer is proposers[-1]:  # a model proposes its own tokens, except for effects of penalties
            assert share > 0.8


def test_repeated_texts_are_found(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that repeats itself needs few steps, and a random one hardly more than without proposals."""
    engine = GenerationEngine(model, 1, captured=False, proposer=PromptLookup())
    steps: list[int] = []
    decode = engine._step
    monkeypatch.setattr(engine, "_step", lambda variant: (steps.append(variant.width), decode(variant))[1])
    bias = SamplingParameters(0.0, logit_bias={7: 1e4})
    assert list(engine.submit(GenerationRequest([7] * 4, 40, bias))) == [7] * 40
    assert len(steps) < 10


def test_useless_proposals_pause() -> None:
    pace, proposed, steps = ProposalPace(), 0, 0
    while steps < 2000:
        steps += 1
        if pace.proposes:
            proposed += 1
            pace.record(pace.length, 0)
        else:
            pace.skip()
    assert proposed < 20
    pace.paused = 0
    for _ in range(4):
        pace.record(pace.length, pace.length)
    assert pace.length == 7


@pytest.mark.parametrize("draft", ["model", "look-up"])
def test_drawn_tokens_have_the_probabilities_of_the_model(draft: str) -> None:
    """Chi-square of pairs of tokens against probabilities in float64, at a significance of one in a million."""
    model, draws, slots, prompt = _model(1, 3, 3, 8), 600, 16, [1, 2, 1, 2, 1]
    continued = (prompt, *([*prompt, i] for i in range(3)))
    with ph.no_grad():
        rows = np.exp([model(ph.tensor([ids], device="numpy")).numpy()[0, -1].astype(np.float64) for ids in continued])
    rows /= rows.sum(1, keepdims=True)
    expected = (rows[0][:, None] * rows[1:]).reshape(-1) * draws
    proposer = PromptLookup() if draft == "look-up" else DraftProposer(_model(1, 4, 3, 8), slots)
    requests = [GenerationRequest(prompt, 2, SamplingParameters(seed=i)) for i in range(draws)]
    texts, streams = _texts(model, requests, proposer, slots, True)
    assert sum(s.accepted for s in streams) > 50
    found = np.bincount([3 * a + b for a, b in texts], minlength=9)
    assert ((found - expected) ** 2 / expected).sum() < 42.7  # 8 degrees of freedom
