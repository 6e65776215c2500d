"""Small configurations of each architecture, as `config.json` of transformers 4 has them, and their inputs and weights."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LENGTH = 12
PADDED = 3
"""Number of tokens of a row, and number of positions of padding on the left of the second row."""
_SIZES = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2}
_LLAMA = {**_GROUPED, "model_type": "llama"}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
_PHI3 = {**_GROUPED, "model_type": "phi3", "partial_rotary_factor": 0.75}
_LONG = {"type": "longrope", "short_factor": [1.0, 1.1, 1.3], "long_factor": [1.5, 2.0, 4.0]}
_ROUTED = {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_LATENT = {
    **_SIZES,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
}
_NEAR = {**_GROUPED, "head_dim": 12, "sliding_window": 4, "query_pre_attn_scalar": 20}

CASES: Mapping[str, dict[str, Any]] = {
    "Llama": _LLAMA,
    "Llama, tied, with biases": {**_LLAMA, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    "Llama 3, scaled": {**_LLAMA, "rope_theta": 500000.0, "rope_scaling": _LLAMA3},
    "Llama, linear": {**_LLAMA, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "Llama, dynamic": {**_LLAMA, "rope_scaling": {"type": "dynamic", "factor": 4.0}},
    "Llama, yarn": {**_LLAMA, "rope_scaling": _YARN},
    "Llama, yarn, all settings": {
        **_LLAMA, "rope_theta": 1000.0,
        "rope_scaling": {**_YARN, "factor": 2.0, "beta_fast": 8, "beta_slow": 2, "attention_factor": 1.3},
    },
    "Mistral": {**_GROUPED, "model_type": "mistral", "sliding_window": 4},
    "Mixtral": {**_GROUPED, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "Granite": {
        **_GROUPED, "model_type": "granite", "embedding_multiplier": 3.0, "logits_scaling": 2.0,
        "residual_multiplier": 0.5, "attention_multiplier": 0.2,
    },
    "Qwen 2": {**_GROUPED, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    "Qwen 2 with experts": {
        **_ROUTED, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 20, "decoder_sparse_step": 2,
    },
    "Qwen 3": {**_GROUPED, "model_type": "qwen3", "head_dim": 12, "tie_word_embeddings": True},
    "Qwen 3 with experts": {**_ROUTED, "model_type": "qwen3_moe", "norm_topk_prob": True, "head_dim": 8},
    "Gemma": {**_GROUPED, "model_type": "gemma", "head_dim": 12},
    "Gemma 2": {**_NEAR, "model_type": "gemma2", "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    "Gemma 3": {
        **_NEAR, "model_type": "gemma3_text", "sliding_window_pattern": 2, "rope_local_base_freq": 100.0,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
    },
    "Phi 3": {**_GROUPED, "model_type": "phi3", "sliding_window": 4},
    "Phi 3, longrope, short": {**_PHI3, "original_max_position_embeddings": 16, "rope_scaling": _LONG},
    "Phi 3, longrope, long": {**_PHI3, "original_max_position_embeddings": 8, "rope_scaling": _LONG},
    "SmolLM 3": {**_GROUPED, "model_type": "smollm3", "no_rope_layer_interval": 2},
    "OLMo 2": {**_GROUPED, "model_type": "olmo2"},
    "GPT-2": {
        "model_type": "gpt2", "vocab_size": 48, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    },
    "GPT-NeoX": {**_SIZES, "model_type": "gpt_neox", "rotary_pct": 0.25, "rotary_emb_base": 1000},
    "GPT-NeoX, serial": {**_SIZES, "model_type": "gpt_neox", "use_parallel_residual": False, "rotary_pct": 0.5},
    "DeepSeek V2": {
        **_LATENT, "model_type": "deepseek_v2", "q_lora_rank": None, "topk_method": "group_limited_greedy", "n_group": 4,
        "topk_group": 2, "routed_scaling_factor": 1.5,
    },
    "DeepSeek V3": {
        **_LATENT, "model_type": "deepseek_v3", "q_lora_rank": 20, "n_group": 2, "topk_group": 1,
        "rope_scaling": {**_YARN, "mscale": 1.0, "mscale_all_dim": 0.5}, "num_nextn_predict_layers": 0,
    },
}  # fmt: skip
"""`config.json` by name of the case."""


def inputs() -> tuple[np.ndarray, np.ndarray]:
    """Return token ids and mask, both (2, LENGTH); the second row begins with padding."""
    ids = np.random.default_rng(0).integers(3, 48, (2, LENGTH))
    mask = np.ones_like(ids)
    mask[1, :PADDED] = ids[1, :PADDED] = 0
    return ids, mask


def weights(name: str, shape: Sequence[int]) -> np.ndarray:
    """Return the values of a tensor of a checkpoint: they follow from its name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if len(shape) > 1:
        return (rng.standard_normal(shape) * 1.2 / shape[-1] ** 0.5).astype(np.float32)
    drawn = rng.uniform(0.5, 1.5, shape) if name.endswith("weight") else rng.standard_normal(shape) * 0.2
    return drawn.astype(np.float32)


def chosen(logits: np.ndarray) -> np.ndarray:
    """Return the logits that are committed: of every third token, of a few words."""
    return np.concatenate([logits[0, ::3, :4], logits[1, PADDED::3, :4]])
