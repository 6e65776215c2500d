"""Hugging Face configurations of Llama: both formats of rotary settings, and unsupported settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.models import BertConfig, Llama, LlamaConfig, RopeScaling
from tests.models.llama_in_numpy import logits

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
SETTINGS: dict[str, dict[str, Any]] = {
    "theta": {"rope_theta": 500000.0},
    "theta of transformers 5": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama3": {"rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "llama3 of transformers 5": {"rope_parameters": {**LLAMA3, "rope_theta": 500000.0}},
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
    "yarn of transformers 5": {
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 2.0,
            "rope_theta": 1000.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 8,
            "beta_slow": 2,
            "attention_factor": 1.3,
        }
    },
    "window as long as the context": {"model_type": "mistral", "sliding_window": 64},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_logits_follow_the_published_formulas(device: ph.Device, name: str) -> None:
    data = {**BASE, **SETTINGS[name]}
    rotary = data.get("rope_scaling") or {}
    if "type" in rotary:
        data["rope_scaling"] = {**rotary, "rope_type": rotary["type"]}
    ph.manual_seed(0)
    model = Llama(LlamaConfig.from_json({**BASE, **SETTINGS[name]}), device).eval()
    ids = np.random.default_rng(0).integers(0, 50, 40)
    state = {k: v.numpy().astype(np.float64) for k, v in model.state_dict().items()}
    want = logits(data, state, ids)
    with ph.no_grad():
        got = model(ph.tensor(ids[None], device=device))[0].numpy()
    # Sums of at most 48 float32 products per layer; the logits are of the size of `scale`.
    scale = np.abs(want).max()
    np.testing.assert_allclose(got, want, atol=1e-4 * scale)
    plain = logits({**BASE, "rope_theta": 10000.0}, state, ids)
    if name != "window as long as the context":
        assert np.abs(plain - want).max() > 1e-2 * scale, "the settings have an effect"


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"sliding_window": 16}, "sliding_window is 16"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_scaling": {"factor": 2.0}}, "rope_type"),
        ({"rope_scaling": {"rope_type": "longrope", "long_factor": [1.0]}}, "long_factor"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "full_attention"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"logit_scale": 2.0}, "logit_scale"),
        ({"model_type": "qwen2"}, "model_type is 'qwen2'"),
        ({"attention_dropout": 0.1}, "attention_dropout"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"mlp_bias": True}, "mlp_bias"),
    ],
    ids=str,
)
def test_unsupported_settings_of_this_decoder_are_refused_by_name(data: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        LlamaConfig.from_json({**BASE, **data})


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
    assert LlamaConfig.from_json({**BASE, **data}) == LlamaConfig.from_json(BASE)
    assert LlamaConfig.from_json({**BASE, "sliding_window": 8, "use_sliding_window": False}) == LlamaConfig.from_json(
        BASE
    )


def test_a_model_with_scaled_rotation_is_saved_and_loaded(tmp_path: Path, numpy_device: ph.Device) -> None:
    model = Llama(LlamaConfig.from_json({**BASE, "rope_scaling": LLAMA3}))
    loaded = ph.load(ph.save(model, tmp_path / "model.safetensors"), "numpy")
    assert isinstance(loaded.config.rope_scaling, RopeScaling)
    np.testing.assert_array_equal(loaded.model["rotary_emb"].cos.numpy(), model.model["rotary_emb"].cos.numpy())
