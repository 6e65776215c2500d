"""Perplexity: the losses of transformers' sliding windows, and of llama.cpp on the same windows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
import polyhal as ph
from polyhal.hal.errors import SettingError
from polyhal.llm import load, perplexity, quantize

from .small_models import STORIES, stories

IDS: list[int] = json.loads((STORIES / "greedy_ids.json").read_text())


def losses(logits: Any, length: int, context: int, stride: int) -> list[float]:
    """The loop of https://huggingface.co/docs/transformers/perplexity; `logits(start, stop)` are of a window's tokens."""
    found: list[float] = []
    before = 0
    for start in range(0, length, stride):
        stop = min(start + context, length)
        rows = np.asarray(logits(start, stop), np.float64)
        rows = rows - rows.max(-1, keepdims=True)
        rows -= np.log(np.exp(rows).sum(-1, keepdims=True))
        found += [-rows[i - start - 1, IDS[i]] for i in range(max(before, start + 1), stop)]
        before = stop
        if stop == length:
            break
    return found


@pytest.mark.parametrize(("context", "stride", "batch"), [(64, 32, 3), (50, 17, None), (40, 40, 1)])
def test_each_token_is_scored_once_in_overlapping_windows(
    tmp_path: Path, context: int, stride: int, batch: int | None
) -> None:
    model = load(stories(tmp_path / "s.gguf"), "numpy")

    def logits(start: int, stop: int) -> np.ndarray:
        with ph.no_grad():
            return model.model(ph.tensor(np.array([IDS[start:stop]], np.int32), device="numpy")).numpy()[0]

    shown: list[int] = []
    found = perplexity(model, IDS, context, stride, batch, lambda done, count, so_far: shown.append(done))
    expected = losses(logits, len(IDS), context, stride)
    assert found.scored == len(expected)
    # Losses of up to about 10 in float32; logits of 5 layers.
    assert found.loss == pytest.approx(np.mean(expected), abs=1e-4)
    assert found.value == pytest.approx(math.exp(np.mean(expected)), rel=1e-4)
    assert found.loss_error == pytest.approx(np.std(expected, ddof=1) / len(expected) ** 0.5, rel=1e-3)
    assert shown == sorted(shown)
    for wrong in ({"context": 1}, {"context": 1000}, {"stride": 0}, {"stride": 600}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            perplexity(model, IDS, **wrong)
    with pytest.raises(SettingError, match="1 tokens"):
        perplexity(model, [1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f32", "q8_0", "q4_k_m"])
def test_llama_cpp_has_the_same_perplexity(tmp_path: Path, kind: str) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python")
    stories(tmp_path / "s.gguf", with_vocabulary=True)
    quantize(tmp_path / "s.gguf", tmp_path / "q.gguf", kind)
    theirs = llama_cpp.Llama(str(tmp_path / "q.gguf"), n_ctx=64, logits_all=True, verbose=False, n_threads=1)

    def logits(start: int, stop: int) -> np.ndarray:
        theirs.reset()
        theirs.eval(IDS[start:stop])
        return np.array(theirs.scores[: stop - start])

    found = perplexity(load(tmp_path / "q.gguf", "numpy"), IDS, 64, 32)
    expected = float(np.mean(losses(logits, len(IDS), 64, 32)))
    # llama.cpp rounds activations to 8 bits in products with blocks, and keys and values to float16.
    assert found.loss == pytest.approx(expected, rel=1e-3 if kind == "f32" else 1e-2)
