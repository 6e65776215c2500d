"""GPT and Llama with masks: each sequence of a padded batch has the logits of the sequence without padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.models import GPT, Decoder, DecoderConfig, GPTConfig, generate, generate_batch

LENGTHS = (5, 9, 2)
RNG = np.random.default_rng(0)
SEQUENCES = [RNG.integers(1, 40, n) for n in LENGTHS]


@pytest.fixture(params=["gpt", "llama"])
def model(request: pytest.FixtureRequest, device: ph.Device) -> Any:
    ph.manual_seed(0)
    if request.param == "gpt":
        made: Any = GPT(GPTConfig(vocab_size=40, block_size=24, n_layer=2, n_head=4, n_embd=16), device)
    else:
        made = Decoder(DecoderConfig(40, 16, 24, 2, 4, 2, 24, initializer_range=0.3), device)
    for p in made.parameters():
        ph.nn.init.normal_(p, 0.0, 0.3) if p.ndim > 1 else None
    return made.eval()


def _padded(side: str) -> tuple[np.ndarray, np.ndarray]:
    """Return token ids, with tokens at padded positions that change the logits unless masked, and the mask."""
    width = max(LENGTHS)
    ids, mask = np.full((len(LENGTHS), width), 39), np.zeros((len(LENGTHS), width), np.int64)
    for row, sequence in enumerate(SEQUENCES):
        at = slice(width - len(sequence), width) if side == "left" else slice(0, len(sequence))
        ids[row, at], mask[row, at] = sequence, 1
    return ids, mask


def _alone(model: Any, sequence: np.ndarray) -> np.ndarray:
    with ph.no_grad():
        logits: np.ndarray = model(ph.tensor(sequence[None], device=model.device)).numpy()[0]
    return logits


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("form", ["integers", "bool", "added"])
def test_padding_changes_nothing(model: Any, side: str, form: str) -> None:
    ids, numbers = _padded(side)
    mask = ph.tensor(numbers, device=model.device)
    if form == "bool":
        mask = mask.bool()
    elif form == "added":
        if side == "left" and isinstance(model, GPT):
            return  # an additive mask does not determine the positions
        mask = ((1 - mask.float()) * -1e9)[:, None, None, :]
    with ph.no_grad():
        logits = model(ph.tensor(ids, device=model.device), attention_mask=mask).numpy()
    for row, sequence in enumerate(SEQUENCES):
        np.testing.assert_allclose(logits[row][numbers[row] > 0], _alone(model, sequence), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pieces", [(9,), (4, 5), (4, 1, 1, 3)])
def test_a_cache_takes_the_mask_of_all_keys_so_far(model: Any, pieces: tuple[int, ...]) -> None:
    ids, numbers = _padded("left")
    cache, start, parts = model.make_cache(len(LENGTHS)), 0, []
    with ph.no_grad():
        for count in pieces:
            end = start + count
            mask = ph.tensor(numbers[:, :end], device=model.device)
            piece = ph.tensor(ids[:, start:end], device=model.device)
            parts.append(model(piece, cache, attention_mask=mask).numpy())
            start = end
    logits = np.concatenate(parts, 1)
    for row, sequence in enumerate(SEQUENCES):
        np.testing.assert_allclose(logits[row][numbers[row] > 0], _alone(model, sequence), rtol=1e-4, atol=1e-5)


def test_an_added_mask_of_each_head_acts_with_and_without_a_cache(model: Any) -> None:
    """A mask by which head 0 attends to the last two tokens only results in equal logits at once, in chunks, and as
    bool."""
    ids = ph.tensor(np.stack([SEQUENCES[1]] * 2), device=model.device)
    seen = np.ones((1, 4, 9, 9), bool)
    seen[:, 0] = np.triu(np.ones((9, 9), bool), -1)
    added = ph.tensor(np.where(seen, 0, -np.inf).astype(np.float32), device=model.device)
    with ph.no_grad():
        whole = model(ids, attention_mask=added).numpy()
        as_bool = model(ids, attention_mask=ph.tensor(seen, device=model.device)).numpy()
        cache = model.make_cache(2)
        parts = [
            model(ids[:, a:b], cache, attention_mask=added[:, :, a:b, :b]).numpy() for a, b in ((0, 4), (4, 5), (5, 9))
        ]
        plain = model(ids).numpy()
    np.testing.assert_allclose(as_bool, whole, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-4, atol=1e-5)
    assert np.abs(plain - whole).max() > 1e-2


def test_a_captured_training_step_takes_a_mask(model: Any) -> None:
    ids, numbers = _padded("right")
    targets = np.where(numbers > 0, ids, -100)
    arguments = [ph.tensor(x, device=model.device) for x in (ids, targets, numbers)]

    def step(ids: ph.Tensor, targets: ph.Tensor, mask: ph.Tensor) -> ph.Tensor:
        model.zero_grad()
        loss: ph.Tensor = model.loss(ids, targets, mask)
        loss.backward()
        return loss

    eager = step(*arguments).item()
    gradient = model.lm_head.weight.grad.numpy()
    captured = ph.jit(step)
    for _ in range(3):
        assert captured(*arguments).item() == pytest.approx(eager, rel=1e-5)
        np.testing.assert_allclose(model.lm_head.weight.grad.numpy(), gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_batch_generates_the_tokens_of_each_single_prompt(model: Any, temperature: float) -> None:
    prompts = [s.tolist() for s in SEQUENCES]
    together = generate_batch(model, prompts, 10, temperature, top_k=5, seed=3)
    alone = [generate(model, p, 10, temperature, top_k=5, seed=3 + i) for i, p in enumerate(prompts)]
    assert together == alone
    stop = together[1][4]
    ended = generate_batch(model, prompts, 10, temperature, top_k=5, seed=3, stop_ids=[stop])
    assert ended[1] == together[1][: together[1].index(stop)]


def test_masks_that_do_not_fit_are_refused(model: Any) -> None:
    ids = ph.zeros((2, 5), dtype="int64", device=model.device)
    for shape in ((2, 4), (3, 5), (5,), (5, 5)):
        with pytest.raises(ph.errors.ShapeError, match="a mask of shape"):
            model(ids, attention_mask=ph.ones(shape, device=model.device))
    with pytest.raises(ph.errors.ShapeError, match="24 in all"):
        generate_batch(model, [[1] * 20], 10)
    with pytest.raises(ValueError, match="a prompt is empty"):
        generate_batch(model, [[1], []], 10)
