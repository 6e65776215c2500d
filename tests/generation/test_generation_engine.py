"""The generation engine: requests that join and leave a batch get the tokens of their own single runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.generation import GenerationEngine, GenerationRequest, PromptReader, SamplingParameters
from polyhal.generation.logprobs import measured
from polyhal.hal import dtypes
from polyhal.models import Decoder, DecoderConfig

GREEDY = SamplingParameters(temperature=0.0)
PENALIZED = SamplingParameters(0.8, 5, 0.9, 0.02, 0.95, 1.3, 0.2, 0.1, {3: -np.inf, 4: 1.0}, seed=7)


@pytest.fixture(scope="module")
def model() -> Any:
    ph.manual_seed(0)
    made = Decoder(DecoderConfig(40, 16, 24, 2, 4, 2, 32, initializer_range=0.3), "numpy")
    return made.eval()


def _alone(model: Any, request: GenerationRequest) -> list[int]:
    """Compute the tokens of a greedy request without a cache."""
    ids, out = list(request.prompt), []
    with ph.no_grad():
        while len(out) < request.max_tokens and len(ids) <= 32:
            token = int(model(ph.tensor([ids], device=model.device)).numpy()[0, -1].argmax())
            if token in request.stop_ids:
                break
            ids.append(token)
            out.append(token)
    return out


@pytest.mark.parametrize("captured", [True, False])
def test_requests_that_join_and_leave(model: Any, captured: bool) -> None:
    """More requests than slots, of different lengths: some stop early, one is cancelled, one fills the context."""
    rng = np.random.default_rng(1)
    requests = [
        GenerationRequest(rng.integers(0, 40, n).tolist(), most, GREEDY)
        for n, most in ((3, 12), (17, 4), (1, 9), (6, 1), (30, 20), (9, 7))
    ]
    first = _alone(model, requests[0])
    requests.append(GenerationRequest(requests[0].prompt, 12, GREEDY, frozenset({first[5]})))
    engine = GenerationEngine(model, 3, captured)
    cancelled = engine.submit(GenerationRequest([1, 2], 30, GREEDY))
    streams = [engine.submit(request) for request in requests]
    next(cancelled)
    cancelled.cancel()
    found = [list(stream) for stream in streams]
    assert found == [_alone(model, request) for request in requests]
    assert [stream.finish_reason for stream in streams] == ["length"] * 6 + ["stop"]
    assert cancelled.finish_reason == "cancelled"
    assert engine.is_idle


def test_a_finished_text_is_continued_from_its_cache(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = GenerationEngine(model, 2, captured=False)
    text = [5, 6, 7, 8, 9]
    text += list(engine.submit(GenerationRequest(text, 6, GREEDY)))
    processed = []
    process = GenerationEngine._process
    monkeypatch.setattr(
        GenerationEngine, "_process", lambda self, slot, n: (processed.append(n), process(self, slot, n))
    )
    request = GenerationRequest([*text, 1, 2, 3], 5, GREEDY)
    assert list(engine.submit(request)) == _alone(model, request)
    assert sum(processed) <= 3


@pytest.mark.parametrize("captured", [True, False])
def test_prompts_in_padded_steps(model: Any, captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of other lengths, in turns in two sequences of a cache full of large numbers, which must not be read."""
    cache, rng = model.make_cache(2), np.random.default_rng(3)
    for x in (*cache.memory[0], *cache.memory[1]):
        x.fill_(1e30)
    monkeypatch.setattr("polyhal.generation.prompts._gains_from_recording", lambda device: captured)
    reader = PromptReader(model, cache)
    texts: list[list[int]] = [[], []]
    with ph.no_grad():
        for round_, count in enumerate((5, 7, 6, 5, 8, 7, 12, 13)):
            i = round_ % 2
            new, filled = rng.integers(0, 40, count).tolist(), len(texts[i])
            logits = reader.read(i, new, filled, last_only=round_ != 3)
            texts[i] += new
            expected = model(ph.tensor([texts[i]], device="numpy"))[:, filled if round_ == 3 else -1 :]
            # Few float32 roundings of sums of 24 products, relative to logits of about 1.
            np.testing.assert_allclose(logits.numpy(), expected.numpy(), rtol=0, atol=1e-5)
    assert [len(text) for text in texts] == [31, 32]  # the last step fills the context


def test_sampling_does_not_depend_on_the_batch(model: Any) -> None:
    prompts = [[1, 2, 3], [4], [9, 8, 7, 6]]
    alone = [list(GenerationEngine(model, 1, False).submit(GenerationRequest(p, 15, PENALIZED))) for p in prompts]
    engine = GenerationEngine(model, 4)
    others = engine.submit(GenerationRequest([2], 3, GREEDY))
    streams = [engine.submit(GenerationRequest(p, 15, PENALIZED)) for p in prompts]
    assert [list(stream) for stream in streams] == alone
    assert not any(3 in tokens for tokens in alone)
    assert list(others) == _alone(model, GenerationRequest([2], 3, GREEDY))


def test_log_probabilities_are_those_of_the_model(model: Any) -> None:
    """Of the softmax of unchanged logits in float64, in a batch with requests that want others, and for prompts."""
    prompt = [1, 2, 3, 9]
    engine = GenerationEngine(model, 3)
    wanted = [engine.submit(GenerationRequest(prompt, 6, PENALIZED, logprobs=n)) for n in (3, 0)]
    plain = engine.submit(GenerationRequest(prompt, 6, GREEDY))
    tokens = [list(stream) for stream in (*wanted, plain)]
    measured = engine.submit(GenerationRequest(prompt, 0, GREEDY, logprobs=2, prompt_logprobs=True))
    assert list(measured) == []
    assert measured.finish_reason == "length"
    assert not plain.logprobs
    ids = prompt + tokens[0]
    with ph.no_grad():
        logits = model(ph.tensor([ids], device="numpy")).numpy()[0].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    # About 2^-24 times the sums of 24 terms in each product, and of 40 terms in the softmax.
    near = {"rtol": 0, "atol": 2e-5}
    for stream, first, count in ((wanted[0], 3, 3), (wanted[1], 3, 0), (measured, 0, 2)):
        rows = stream.prompt_logprobs or stream.logprobs
        assert len(rows) == (3 if stream is measured else 6)
        for i, row in enumerate(rows):
            theirs = expected[first + i]
            np.testing.assert_allclose(row.logprob, theirs[ids[first + i + 1]], **near)
            best = np.argsort(-theirs)[:count]
            assert [token for token, _ in row.alternatives] == best.tolist()
            np.testing.assert_allclose([value for _, value in row.alternatives], theirs[best], **near)


def test_the_most_likely_tokens_are_in_order(device: ph.Device) -> None:
    """As NumPy sorts logits, stably: ties within the 20 and at their end, and logits whose probabilities are equal floats."""
    rng = np.random.default_rng(3)
    logits = np.stack([rng.integers(-8, 8, 300) / 4, rng.normal(size=300), np.zeros(300)]).astype(np.float32)
    logits[2] += np.repeat([50.0, -1e-3], 150).astype(np.float32)
    logits[2, [7, 5, 9]] = np.nextafter(np.float32(50), np.float32([60, 60, 0]))
    rows = measured(ph.tensor(logits, device=device), ph.tensor([1, 2, 3], device=device), 20).numpy()
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact).sum(1, keepdims=True))
    order = np.argsort(-logits, axis=1, kind="stable")[:, :20]
    np.testing.assert_array_equal(rows[:, 21:], order)
    assert (order[:, 0] == logits.argmax(1)).all()
    # Roundings of 300 terms of a sum whose logarithm has the slope 1, and one of the result, which is at most 64.
    np.testing.assert_allclose(
        rows[:, 1:21], np.take_along_axis(exact, order, 1), rtol=0, atol=300 * 2.0**-24 + 2.0**-18
    )
    np.testing.assert_allclose(rows[:, 0], exact[range(3), [1, 2, 3]], rtol=0, atol=300 * 2.0**-24 + 2.0**-18)


def test_drawn_tokens_have_their_probabilities() -> None:
    """Chi-square against probabilities in float64, at a significance of one in a million."""
    logits, rows = np.log([0.4, 0.3, 0.15, 0.1, 0.05]), 4000
    kept = np.array([0.4, 0.3, 0.15, 0, 0]) / 0.85
    of = {name: ph.full((rows,), value, dtypes.float32, "numpy") for name, value in (("one", 1.0), ("zero", 0.0))}
    tokens = ph.nn.functional.sample_tokens(
        ph.tensor(np.tile(logits, (rows, 1)).astype(np.float32), device="numpy"),
        of["one"],
        ph.full((rows,), 3, dtypes.int32, "numpy"),
        of["one"],
        of["zero"],
        of["one"],
        ph.full((rows, 2), 11, dtypes.int32, "numpy"),
        ph.arange(0, rows, 1, dtypes.int32, device="numpy"),
    )
    found = np.bincount(tokens.numpy(), minlength=5)
    assert not found[3:].any()
    expected = kept[:3] * rows
    assert ((found[:3] - expected) ** 2 / expected).sum() < 27.6


def test_wrong_requests_are_refused(model: Any) -> None:
    with pytest.raises(ValueError, match="prompt is empty"):
        GenerationRequest([], 5)
    with pytest.raises(ValueError, match="at most 32"):
        GenerationEngine(model).submit(GenerationRequest([1] * 33, 5))
    for settings in ({"temperature": -1.0}, {"top_p": 0.0}, {"min_p": 2.0}, {"typical_p": 0.0}, {"seed": -1}):
        with pytest.raises(ValueError, match="expected"):
            SamplingParameters(**settings)
