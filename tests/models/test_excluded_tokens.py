"""Token ids without text are never generated."""

from __future__ import annotations

from typing import Any

import pytest

import polyhal as ph
from polyhal.models import GPT, GPTConfig, generate
from polyhal.text import CharTokenizer
from polyhal.text.tokenizer import without_text


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_samples_have_no_token_without_text(temperature: float) -> None:
    tokenizer = CharTokenizer.train("ab\n")
    ph.manual_seed(0)
    model: Any = GPT(
        GPTConfig(tokenizer.vocab_size, block_size=8, n_layer=1, n_head=1, n_embd=4, tie_weights=False), "numpy"
    )
    with ph.no_grad():  # the unknown character is most likely after any input
        model.transformer["ln_f"].bias[:] = 1.0
        model.transformer["ln_f"].weight.zero_()
        model.lm_head.weight[tokenizer.unknown_id] = 3.0
    written = generate(model, [2], 30, temperature, seed=1)
    assert tokenizer.unknown_id in written
    excluded = without_text(tokenizer)
    assert excluded == [tokenizer.pad_id, tokenizer.unknown_id]
    written = generate(model, [2], 30, temperature, seed=1, excluded_ids=excluded)
    assert len(written) == 30
    assert not set(excluded) & set(written)
    assert "\ufffd" not in tokenizer.decode(written)
