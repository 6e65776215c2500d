"""Architectures of decoders as data: defaults of `config.json`, the parts that a setting chooses, and names of weights.

Defaults are the defaults of transformers 5 for absent settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Windows = Literal["all", "period", "late", "early"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderArchitecture:
    """How a `model_type` of `config.json` chooses the parts of a decoder."""

    title: str
    defaults: Mapping[str, Any]
    """Every setting that is read, with its value if it is absent."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `DecoderConfig` that all models of the architecture share."""
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields of `DecoderConfig` by setting, in addition to `SETTINGS`."""
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Supported values of settings for which transformers supports more."""
    windows: Windows | None = None
    """Layers with a sliding window if `layer_types` is absent: all, all but each `sliding_window_pattern`-th one, layers from
    `max_window_layers` on, or every other one before it; None if the architecture has no windows."""
    experts: Mapping[str, str] = field(default_factory=dict)
    """Settings by field of `ExpertConfig`; empty if the architecture has no experts."""
    expert_parts: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `ExpertConfig` that all models of the architecture share."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Parts of names in checkpoints by parts of the decoder's names. `{}` is an expert's number."""
    fused: Mapping[str, tuple[str, Literal["after", "per head"]]] = field(default_factory=dict)
    """Tensors that hold several projections, by projections separated by a space: one after the other, or head by
    head."""
    transposed: tuple[str, ...] = ()
    """Parts of names of weights that are stored as (in, out)."""


SETTINGS: Mapping[str, tuple[str, ...]] = {
    "vocab_size": ("vocab_size",),
    "hidden_size": ("hidden_size",),
    "intermediate_size": ("intermediate_size",),
    "num_hidden_layers": ("num_hidden_layers",),
    "num_attention_heads": ("num_attention_heads",),
    "num_key_value_heads": ("num_key_value_heads",),
    "max_position_embeddings": ("max_position_embeddings",),
    "rms_norm_eps": ("norm_eps",),
    "layer_norm_eps": ("norm_eps",),
    "tie_word_embeddings": ("tie_word_embeddings",),
    "attention_bias": ("attention_bias", "output_bias"),
    "mlp_bias": ("mlp_bias",),
    "head_dim": ("head_dim",),
    "initializer_range": ("initializer_range",),
    "hidden_act": ("activation",),
    "hidden_activation": ("activation",),
    "attn_logit_softcapping": ("attention_softcap",),
    "final_logit_softcapping": ("logit_softcap",),
    "rope_interleave": ("rope_interleaved",),
}
"""Fields of `DecoderConfig` by setting, for all architectures."""

_ROTARY = {"rope_theta": None, "rope_scaling": None, "rope_parameters": None}
_WINDOW = {"sliding_window": None, "use_sliding_window": True, "layer_types": None}

_LLAMA: dict[str, Any] = {
    **_ROTARY,
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "silu", "max_position_embeddings": 2048,
    "initializer_range": 0.02, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False,
    "attention_dropout": 0.0, "head_dim": None,
}  # fmt: skip
_MISTRAL: dict[str, Any] = {
    **_LLAMA,
    **_WINDOW,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
_QWEN: dict[str, Any] = {
    **_LLAMA,
    **_WINDOW,
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_EXPERTS: dict[str, Any] = {
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "decoder_sparse_step": 1,
    "norm_topk_prob": False,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
    "mlp_only_layers": None,
}
_GEMMA: dict[str, Any] = {
    **_LLAMA,
    "vocab_size": 256000,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": None,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "sliding_window_size": None,
    "cache_implementation": None,
    "use_bidirectional_attention": None,
}
_GEMMA2: dict[str, Any] = {
    **_GEMMA,
    **_WINDOW,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
_GEMMA3: dict[str, Any] = {
    **_GEMMA2,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
    "rope_theta": 1e6,
    "rope_local_base_freq": 10000.0,
    "sliding_window_pattern": 6,
}
_DEEPSEEK: dict[str, Any] = {
    **_LLAMA,
    "output_router_logits": False,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "qk_head_dim": None,
    "v_head_dim": 128,
    "routed_scaling_factor": 1.0,
    "aux_loss_alpha": None,
    "seq_aux": None,
    "ep_size": 1,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 0,
    "num_mtp_layers": 0,
}

_PER_EXPERT = {
    f"mlp.experts.{kind}_proj.weight": f"mlp.experts.{{}}.{kind}_proj.weight" for kind in ("gate", "up", "down")
}
_SHARED_EXPERTS = {**_PER_EXPERT, "mlp.shared_expert.": "mlp.shared_experts."}
_ROUTED = {
    "count": "num_experts",
    "per_token": "num_experts_per_tok",
    "intermediate_size": "moe_intermediate_size",
    "normalised": "norm_topk_prob",
}
_ROUTED_DEEPSEEK = {**_ROUTED, "count": "n_routed_experts", "scale": "routed_scaling_factor"}
_TWO_SIDED = {"norm": "rms_plus_one", "norm_places": "both"}
_PLAIN: dict[str, Any] = {"norm": "layer", "gated": False, "mlp_bias": True}
_NOT_PREDICTED = {"moe_layer_freq": (1,), "ep_size": (1,)}
_CAUSAL = {"use_bidirectional_attention": (False, None)}

ARCHITECTURES: Mapping[str, DecoderArchitecture] = {
    "llama": DecoderArchitecture(
        title="Llama 2, 3, 3.1 to 3.3, SmolLM 1 and 2", defaults={**_LLAMA, **_WINDOW, "mlp_bias": False}
    ),
    "mistral": DecoderArchitecture(
        title="Mistral",
        defaults={**_MISTRAL, "sliding_window": 4096},
        only={"attention_bias": (False,)},
        windows="all",
    ),
    "mixtral": DecoderArchitecture(
        title="Mixtral",
        defaults={
            **_MISTRAL, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_experts_per_tok": 2, "num_local_experts": 8,
            "output_router_logits": False, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
        },
        only={"attention_bias": (False,)},
        windows="all",
        experts={
            "count": "num_local_experts",
            "per_token": "num_experts_per_tok",
            "intermediate_size": "intermediate_size",
        },
        expert_parts={"normalised": True},
        names={
            "mlp.gate.": "block_sparse_moe.gate.",
            "mlp.experts.gate_proj.weight": "block_sparse_moe.experts.{}.w1.weight",
            "mlp.experts.down_proj.weight": "block_sparse_moe.experts.{}.w2.weight",
            "mlp.experts.up_proj.weight": "block_sparse_moe.experts.{}.w3.weight",
        },
    ),
    "granite": DecoderArchitecture(
        title="Granite 3",
        defaults={
            **_LLAMA, "mlp_bias": False, "embedding_multiplier": 1.0, "logits_scaling": 1.0, "residual_multiplier": 1.0,
            "attention_multiplier": 1.0,
        },
        reads={
            "embedding_multiplier": ("embedding_scale",),
            "residual_multiplier": ("residual_scale",),
            "attention_multiplier": ("attention_scale",),
        },
    ),
    "qwen2": DecoderArchitecture(
        title="Qwen 2, 2.5",
        defaults=_QWEN,
        parts={"attention_bias": True, "output_bias": False},
        only={"attention_bias": (True, False)},
        windows="late",
    ),
    "qwen2_moe": DecoderArchitecture(
        title="Qwen 1.5 and 2 with experts",
        defaults={
            **_QWEN, **_EXPERTS, "intermediate_size": 5632, "num_attention_heads": 16, "num_key_value_heads": 16,
            "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4,
            "num_experts": 60, "qkv_bias": True,
        },
        parts={"output_bias": False},
        reads={"qkv_bias": ("attention_bias",)},
        windows="early",
        experts={**_ROUTED, "shared_size": "shared_expert_intermediate_size"},
        expert_parts={"shared_gate": True},
        names=_PER_EXPERT,
    ),
    "qwen3": DecoderArchitecture(
        title="Qwen 3", defaults={**_QWEN, "head_dim": 128}, parts={"query_key_norm": "head"}, windows="late"
    ),
    "qwen3_moe": DecoderArchitecture(
        title="Qwen 3 with experts",
        defaults={
            **_QWEN, **_EXPERTS, "intermediate_size": 6144, "num_key_value_heads": 4, "moe_intermediate_size": 768,
            "num_experts_per_tok": 8, "num_experts": 128,
        },
        parts={"query_key_norm": "head"},
        windows="all",
        experts=_ROUTED,
        names=_PER_EXPERT,
    ),
    "gemma": DecoderArchitecture(title="Gemma", defaults=_GEMMA, parts={"norm": "rms_plus_one"}, only=_CAUSAL),
    "gemma2": DecoderArchitecture(title="Gemma 2", defaults=_GEMMA2, parts=_TWO_SIDED, only=_CAUSAL, windows="period"),
    "gemma3_text": DecoderArchitecture(
        title="Gemma 3, text",
        defaults=_GEMMA3,
        parts={**_TWO_SIDED, "query_key_norm": "head"},
        only=_CAUSAL,
        windows="period",
    ),
    "phi3": DecoderArchitecture(
        title="Phi 3, 3.5, 4, 4 mini",
        defaults={
            **_LLAMA, **_WINDOW, "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "resid_pdrop": 0.0,
            "embd_pdrop": 0.0, "lm_head_bias": False, "mlp_bias": False, "full_attn_mod": 1, "interpolate_factor": 1,
            "max_position_embeddings": 4096, "original_max_position_embeddings": None,
            "rms_norm_eps": 1e-5, "partial_rotary_factor": 1.0,
        },
        only={
            **dict.fromkeys(("attention_bias", "lm_head_bias", "mlp_bias"), (False,)),
            **dict.fromkeys(("resid_pdrop", "embd_pdrop"), (0,)),
            **dict.fromkeys(("full_attn_mod", "interpolate_factor"), (1,)),
        },
        windows="all",
        fused={"q_proj k_proj v_proj": ("qkv_proj", "after"), "gate_proj up_proj": ("gate_up_proj", "after")},
    ),
    "smollm3": DecoderArchitecture(
        title="SmolLM 3",
        defaults={
            **_LLAMA, **_WINDOW, "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 36,
            "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 32768,
            "use_sliding_window": False, "max_window_layers": None, "no_rope_layers": None, "no_rope_layer_interval": 4,
            "mlp_bias": False,
            "tie_word_embeddings": True, "rope_theta": 2e6,
        },
        windows="all",
    ),
    "olmo2": DecoderArchitecture(
        title="OLMo 2",
        defaults={**_LLAMA, "vocab_size": 50304, "rms_norm_eps": 1e-5},
        parts={"norm_places": "after", "query_key_norm": "all"},
    ),
    "gpt2": DecoderArchitecture(
        title="GPT-2",
        defaults={
            "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
            "n_ctx": None, "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
            "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "summary_type": None, "summary_use_proj": None,
            "summary_activation": None, "summary_proj_to_labels": None, "summary_first_dropout": None,
            "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False,
            "tie_word_embeddings": True,
        },
        parts={**_PLAIN, "attention_bias": True, "output_bias": True, "positions": "learned"},
        reads={
            "n_positions": ("max_position_embeddings",),
            "n_embd": ("hidden_size",),
            "n_layer": ("num_hidden_layers",),
            "n_head": ("num_attention_heads",),
            "n_inner": ("intermediate_size",),
            "activation_function": ("activation",),
            "layer_norm_epsilon": ("norm_eps",),
        },
        only={
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "reorder_and_upcast_attn": (False, True),
        },
        names={
            "model.layers.": "transformer.h.",
            "model.embed_tokens.": "transformer.wte.",
            "model.embed_positions.": "transformer.wpe.",
            "model.norm.": "transformer.ln_f.",
            "input_layernorm.": "ln_1.",
            "post_attention_layernorm.": "ln_2.",
            "self_attn.o_proj.": "attn.c_proj.",
            "self_attn.c_attn.": "attn.c_attn.",
            "mlp.up_proj.": "mlp.c_fc.",
            "mlp.down_proj.": "mlp.c_proj.",
        },
        fused={"q_proj k_proj v_proj": ("c_attn", "after")},
        transposed=("c_attn.", "c_proj.", "c_fc."),
    ),
    "gpt_neox": DecoderArchitecture(
        title="GPT-NeoX, Pythia",
        defaults={
            **_ROTARY, "vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
            "intermediate_size": 24576, "hidden_act": "gelu", "rotary_pct": 0.25, "rotary_emb_base": 10000.0,
            "attention_dropout": 0.0, "hidden_dropout": 0.0, "attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0,
            "classifier_dropout": 0.1, "max_position_embeddings": 2048,
            "initializer_range": 0.02, "layer_norm_eps": 1e-5, "tie_word_embeddings": False,
            "use_parallel_residual": True, "attention_bias": True, "partial_rotary_factor": None,
        },
        parts=_PLAIN,
        reads={"use_parallel_residual": ("parallel_residual",)},
        only=dict.fromkeys(("hidden_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob"), (0,)),
        names={
            "model.layers.": "gpt_neox.layers.",
            "model.embed_tokens.": "gpt_neox.embed_in.",
            "model.norm.": "gpt_neox.final_layer_norm.",
            "lm_head.": "embed_out.",
            "self_attn.o_proj.": "attention.dense.",
            "self_attn.query_key_value.": "attention.query_key_value.",
            "mlp.up_proj.": "mlp.dense_h_to_4h.",
            "mlp.down_proj.": "mlp.dense_4h_to_h.",
        },
        fused={"q_proj k_proj v_proj": ("query_key_value", "per head")},
    ),
    "deepseek_v2": DecoderArchitecture(
        title="DeepSeek V2",
        defaults={
            **_DEEPSEEK, "vocab_size": 102400, "mlp_bias": False, "first_k_dense_replace": 0, "n_group": None,
            "n_routed_experts": 64, "n_shared_experts": 2, "topk_group": None, "topk_method": "greedy",
            "norm_topk_prob": False, "num_experts_per_tok": None, "moe_intermediate_size": 1407, "scoring_func": "softmax",
        },
        parts={"rope_interleaved": True},
        only={
            **_NOT_PREDICTED,
            "norm_topk_prob": (False,),
            "scoring_func": ("softmax",),
            "topk_method": ("greedy", "group_limited_greedy"),
        },
        experts=_ROUTED_DEEPSEEK,
        names=_SHARED_EXPERTS,
    ),
    "deepseek_v3": DecoderArchitecture(
        title="DeepSeek V3, R1",
        defaults={
            **_DEEPSEEK, "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
            "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
            "n_shared_experts": 1, "n_routed_experts": 256, "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
            "num_experts_per_tok": 8, "first_k_dense_replace": 3, "norm_topk_prob": True,
            "max_position_embeddings": 4096, "rope_interleave": True, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
        },
        only={**_NOT_PREDICTED, "scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)},
        experts=_ROUTED_DEEPSEEK,
        expert_parts={"scores": "sigmoid", "correction": True, "group_scores": "two"},
        names=_SHARED_EXPERTS,
    ),
}  # fmt: skip
"""Architectures by `model_type`."""
