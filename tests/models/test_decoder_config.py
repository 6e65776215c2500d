"""Hugging Face configurations of decoders: unsupported settings, and settings without an effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.models import BertConfig, Decoder, DecoderConfig, RopeScaling

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 50,
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "hidden_act": "silu", "initializer_range": 0.3,
    "attention_dropout": 0.0, "use_cache": True, "pretraining_tp": 1, "transformers_version": "5.0.0",
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"sliding_window": 16}, "sliding_window is 16"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"rope_scaling": {"rope_type": "proportional", "factor": 2.0}}, "proportional"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_type"),
        ({"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0]}}, "short_factor"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "full_attention"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"logit_scale": 2.0}, "logit_scale"),
        ({"model_type": "mamba"}, "model_type is 'mamba'"),
        ({"model_type": "deepseek_v2", "norm_topk_prob": True}, "norm_topk_prob"),
        ({"model_type": "gemma2", "use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"attention_dropout": 0.1}, "attention_dropout"),
        ({"hidden_act": "laplace"}, "hidden_act"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3"),
        (
            {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.2}},
            "3 of 16 features per head are rotated",
        ),
        ({"rope_parameters": {"partial_rotary_factor": 0.0}}, "0 of 16 features per head are rotated"),
        ({"model_type": "qwen2_moe", "num_experts": 3}, "4 of 3 experts"),
    ],
    ids=str,
)
def test_unsupported_settings_of_this_decoder_are_refused_by_name(data: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        DecoderConfig.from_json({**BASE, **data})


def test_settings_of_another_encoder_are_refused_by_name() -> None:
    data = {
        "model_type": "bert",
        "hidden_size": 24,
        "num_attention_heads": 2,
        "pad_token_id": 0,
        "layer_norm_eps": 1e-12,
    }
    assert BertConfig.from_json(data).hidden_size == 24
    for other in ({"embedding_size": 128}, {"is_decoder": True}, {"model_type": "roberta"}):
        with pytest.raises(ValueError, match=next(iter(other))):
            BertConfig.from_json({**data, **other})


def test_settings_without_an_effect_are_accepted() -> None:
    data = {
        "sliding_window": None,
        "id2label": {"0": "x"},
        "eos_token_id": [1, 2],
        "layer_types": ["full_attention"] * 2,
    }
    assert DecoderConfig.from_json({**BASE, **data}) == DecoderConfig.from_json(BASE)
    assert DecoderConfig.from_json(
        {**BASE, "sliding_window": 8, "use_sliding_window": False}
    ) == DecoderConfig.from_json(BASE)


@pytest.mark.parametrize(
    "data",
    [
        {
            "model_type": "phi3",
            "auto_map": {"AutoConfig": "x"},
            "lm_head_bias": False,
            "full_attn_mod": 1,
            "mlp_bias": False,
        },
        {"model_type": "gemma2", "sliding_window_size": 32, "cache_implementation": "hybrid"},
        {"model_type": "gpt_neox", "attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0},
        {"model_type": "smollm3", "max_window_layers": 28, "transformers.js_config": {"dtype": "q4"}},
        {
            "model_type": "deepseek_v3",
            "moe_layer_freq": 1,
            "ep_size": 1,
            "num_nextn_predict_layers": 1,
            "seq_aux": True,
        },
    ],
    ids=lambda data: data["model_type"],
)
def test_settings_that_published_models_have_in_addition_are_accepted(data: dict[str, Any]) -> None:
    assert DecoderConfig.from_json(data) == DecoderConfig.from_json({"model_type": data["model_type"]})


def test_a_model_with_scaled_rotation_is_saved_and_loaded(tmp_path: Path, numpy_device: ph.Device) -> None:
    model = Decoder(DecoderConfig.from_json({**BASE, "rope_scaling": LLAMA3}))
    loaded = ph.load(ph.save(model, tmp_path / "model.safetensors"), "numpy")
    assert isinstance(loaded.config.rope_scaling, RopeScaling)
    np.testing.assert_array_equal(loaded.model["rotary_emb"].cos.numpy(), model.model["rotary_emb"].cos.numpy())
