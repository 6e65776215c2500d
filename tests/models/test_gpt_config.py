"""Hugging Face configurations of GPT-2: their names of settings, and unsupported settings."""

from __future__ import annotations

from typing import Any

import pytest

from polyhal.models import GPTConfig

PUBLISHED: dict[str, Any] = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-6, "model_type": "gpt2",
    "n_ctx": 512, "n_embd": 48, "n_head": 6, "n_inner": None, "n_layer": 3, "n_positions": 512, "resid_pdrop": 0.1,
    "scale_attn_weights": True, "summary_type": "cls_index", "tie_word_embeddings": False, "torch_dtype": "float32",
    "use_cache": True, "vocab_size": 1000,
}  # fmt: skip


def test_a_configuration_of_hugging_face_is_read() -> None:
    expected = GPTConfig(1000, 512, 3, 6, 48, dropout=0.1, tie_weights=False, layer_norm_eps=1e-6)
    assert GPTConfig.from_json(PUBLISHED) == expected
    assert GPTConfig.from_json({**PUBLISHED, "n_inner": 192}) == expected


def test_own_settings_are_read_back() -> None:
    config = GPTConfig(1000, 512, 3, 6, 48, bias=False)
    assert GPTConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"activation_function": "relu"}, "activation_function is 'relu'"),
        ({"activation_function": "gelu"}, "gelu_new"),
        ({"n_inner": 100}, "n_inner is 100; expected 192"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"scale_attn_weights": False}, "scale_attn_weights"),
        ({"resid_pdrop": 0.0}, "resid_pdrop is 0.0"),
        ({"model_type": "gptj"}, "model_type is 'gptj'"),
        ({"rotary_dim": 64}, "rotary_dim"),
    ],
)
def test_unsupported_settings_of_gpt2_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        GPTConfig.from_json({**PUBLISHED, **changes})


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="n_layer is '3'"):
        GPTConfig.from_json({**PUBLISHED, "n_layer": "3"})
