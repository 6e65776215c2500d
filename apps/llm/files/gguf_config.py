"""Metadata of GGUF files, translated to the `config.json` of the same architecture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyhal.hal.errors import CorruptFileError, message
from polyhal.llm.files.model_files import StoredWeight

_LARGEST_SIZE = 1 << 31

_SIZES = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
"""Keys, without the architecture, by settings."""
_PLAIN = {k: v for k, v in _SIZES.items() if k not in ("num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta")}
_EXPERTS = {
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
_WINDOW = {"sliding_window": "attention.sliding_window"}
_REQUIRED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "n_embd", "n_layer", "n_head")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRule:
    """How an architecture's metadata are translated."""

    model_type: str
    settings: Mapping[str, str]
    """Keys by settings."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    more: Callable[[_Metadata, dict[str, Any]], None] | None = None
    """Adds settings that are not a value of one key."""
    neighbours_rotate: bool = False
    """Rows of queries and keys are in the order in which rotated features are neighbours."""
    norms_plus_one: bool = False
    """Weights of norms are stored with 1 added."""
    fused: tuple[str, ...] = ()
    """Tensors that hold the rows of several layers, in files that are written."""
    writes: tuple[str, ...] = ()
    """Keys that `more` reads, and that are written."""


class _Metadata:
    """Values of an architecture's keys, checked."""

    def __init__(self, values: Mapping[str, Any], tensors: Mapping[str, StoredWeight]) -> None:
        self.values, self.tensors = values, tensors
        self.prefix = f"{values['general.architecture']}."

    def get(self, key: str, default: Any = None) -> Any:
        """Return a number, text or bool; of a list of equal numbers, which some files have per layer, the number."""
        value = self.values.get(self.prefix + key, default)
        if isinstance(value, np.ndarray):
            distinct = set(value.tolist())
            if len(distinct) != 1:
                problem = f"{self.prefix}{key} differs from layer to layer: {sorted(distinct)[:8]}"
                raise CorruptFileError(message("open_model", problem, expected="one value"))
            value = distinct.pop()
        if isinstance(value, (int, float)) and not abs(value) < _LARGEST_SIZE:
            problem = f"{self.prefix}{key} is {value}"
            raise CorruptFileError(message("open_model", problem, expected=f"less than {_LARGEST_SIZE}"))
        return value

    def has(self, tensor: str) -> bool:
        """Return whether a tensor exists."""
        return tensor in self.tensors

    def numbers(self, tensor: str) -> list[float]:
        """Return the numbers of a short tensor."""
        values = self.tensors[tensor].read()
        return [float(v) for v in values.astype(np.float32).reshape(-1)]


def config_of(metadata: Mapping[str, Any], tensors: Mapping[str, StoredWeight]) -> dict[str, Any]:
    """Return the `config.json` that metadata and tensors describe. Raises CorruptFileError for a missing or absurd value."""
    known = _Metadata(metadata, tensors)
    rule = RULES[metadata["general.architecture"]]
    config: dict[str, Any] = {"model_type": rule.model_type, **rule.constants}
    for setting, key in rule.settings.items():
        value = known.get(key)
        if value is None and setting in _REQUIRED:
            raise CorruptFileError(message("open_model", f"{known.prefix}{key} is missing"))
        if value is not None:
            config[setting] = value
    if not known.has("token_embd.weight"):
        raise CorruptFileError(message("open_model", "tensor token_embd.weight is missing"))
    config["vocab_size"] = tensors["token_embd.weight"].shape[0]
    config["tie_word_embeddings"] = not known.has("output.weight")
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    if type(layers) is not int or not 0 < layers <= len(tensors):
        problem = f"{known.prefix}block_count is {layers!r}"
        raise CorruptFileError(message("open_model", problem, expected=f"1 to {len(tensors)}, the number of tensors"))
    for setting, value in config.items():
        if setting in _REQUIRED and (type(value) is not int or value < 1):
            raise CorruptFileError(message("open_model", f"{setting} is {value!r}", expected="1 or more"))
    if "rope_theta" in rule.settings:
        _rotary(known, config)
    if rule.more is not None:
        rule.more(known, config)
    return config


def _rotary(known: _Metadata, config: dict[str, Any]) -> None:
    """Add the scaling of rotary frequencies."""
    kind, factor = known.get("rope.scaling.type"), known.get("rope.scaling.factor")
    original = known.get("rope.scaling.original_context_length") or config.get("max_position_embeddings")
    if known.has("rope_freqs.weight"):
        divisors = known.numbers("rope_freqs.weight")
        config["rope_scaling"] = _by_divisors(divisors, divisors, config.get("max_position_embeddings"), 1.0)
    elif known.has("rope_factors_short.weight"):
        short, long = (known.numbers(f"rope_factors_{name}.weight") for name in ("short", "long"))
        config["rope_scaling"] = _by_divisors(short, long, original, known.get("rope.scaling.attn_factor"))
    elif kind in ("linear", "yarn") and factor:
        scaling = {"rope_type": kind, "factor": float(factor)}
        if kind == "yarn":
            scaling["original_max_position_embeddings"] = original
            names = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
            scaling |= {k: v for k, n in names.items() if (v := known.get(f"rope.scaling.{n}")) is not None}
            scaling |= _magnitude(known, factor)
        config["rope_scaling"] = scaling


def _magnitude(known: _Metadata, factor: float) -> dict[str, float]:
    """Return the factors of cosines, sines and scores. `attn_factor` multiplies the usual one."""
    logarithm, relative = known.get("rope.scaling.yarn_log_multiplier"), known.get("rope.scaling.attn_factor")
    if logarithm:
        return dict.fromkeys(("mscale", "mscale_all_dim"), logarithm * 10)
    return {} if relative is None else {"attention_factor": relative * (1 + 0.1 * math.log(factor))}


def _by_divisors(short: list[float], long: list[float], original: Any, magnitude: float | None) -> dict[str, Any]:
    scaling = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    scaling |= {"original_max_position_embeddings": original}
    return scaling if magnitude is None else {**scaling, "attention_factor": magnitude, "factor": 1.0}


def _llama(known: _Metadata, config: dict[str, Any]) -> None:
    config.setdefault("head_dim", known.get("rope.dimension_count"))
    if known.has("blk.0.attn_q.bias"):
        config["attention_bias"] = True
    if known.has("blk.0.ffn_up.bias"):
        config["mlp_bias"] = True
    if known.get("expert_count"):
        config["model_type"] = "mixtral"
        config |= {"num_local_experts": known.get("expert_count"), "sliding_window": None}
        config["num_experts_per_tok"] = known.get("expert_used_count")


def _granite(known: _Metadata, config: dict[str, Any]) -> None:
    if known.has("blk.0.attn_q.bias"):
        config["attention_bias"] = True
    config["mlp_bias"] = known.has("blk.0.ffn_up.bias")


def _qwen2_moe(known: _Metadata, config: dict[str, Any]) -> None:
    shared = "blk.0.ffn_up_shexp.weight"
    if known.has(shared):
        config["shared_expert_intermediate_size"] = known.tensors[shared].shape[0]
    for name in ("moe_intermediate_size", "num_experts"):
        if name not in config:
            tensor = "blk.0.ffn_up_exps.weight"
            config[name] = known.tensors[tensor].shape[1 if name[0] == "m" else 0] if known.has(tensor) else 0
    config.setdefault("intermediate_size", config["moe_intermediate_size"])


def _gemma(known: _Metadata, config: dict[str, Any]) -> None:
    heads = config["num_attention_heads"]
    config.setdefault("head_dim", config["hidden_size"] // heads)
    is_27b = (config["model_type"], config["num_hidden_layers"]) in (("gemma2", 46), ("gemma3_text", 62))
    if config["model_type"] != "gemma":
        config["query_pre_attn_scalar"] = config["hidden_size"] // heads if is_27b else config["head_dim"]


def _phi3(known: _Metadata, config: dict[str, Any]) -> None:
    config["original_max_position_embeddings"] = (
        known.get("rope.scaling.original_context_length") or config["max_position_embeddings"]
    )
    width = config["hidden_size"] // config["num_attention_heads"]
    rotated = known.get("rope.dimension_count")
    if rotated and rotated != width:
        config["partial_rotary_factor"] = rotated / width


def _smollm3(known: _Metadata, config: dict[str, Any]) -> None:
    config["no_rope_layers"] = [int((i + 1) % 4 != 0) for i in range(config["num_hidden_layers"])]


def _gpt2(known: _Metadata, config: dict[str, Any]) -> None:
    config["activation_function"] = "gelu_new"


def _gpt_neox(known: _Metadata, config: dict[str, Any]) -> None:
    rotated = known.get("rope.dimension_count")
    if rotated:
        config["rotary_pct"] = rotated / (config["hidden_size"] // config["num_attention_heads"])


def _deepseek(known: _Metadata, config: dict[str, Any]) -> None:
    is_v3 = known.get("expert_gating_func") == 2
    config["model_type"] = "deepseek_v3" if is_v3 else "deepseek_v2"
    rotated = known.get("rope.dimension_count") or 64
    key, value = (
        known.get(f"attention.{k}_length_mla") or known.get(f"attention.{k}_length") for k in ("key", "value")
    )
    config |= {"qk_rope_head_dim": rotated, "qk_nope_head_dim": (key or 192) - rotated, "v_head_dim": value or 128}
    config["q_lora_rank"] = known.get("attention.q_lora_rank")
    config["num_key_value_heads"] = config["num_attention_heads"]
    if is_v3:
        config["norm_topk_prob"] = bool(known.get("expert_weights_norm", True))
    config["routed_scaling_factor"] = known.get("expert_weights_scale") or 1.0
    groups = {"n_group": known.get("expert_group_count"), "topk_group": known.get("expert_group_used_count")}
    config |= {k: v for k, v in groups.items() if v is not None}
    if not is_v3 and (config.get("n_group") or 1) > 1:
        config["topk_method"] = "group_limited_greedy"


_MOE = {**_SIZES, **_EXPERTS}
_GEMMA = {**_SIZES, **_WINDOW}
_GEMMA3 = {
    **_GEMMA,
    "sliding_window_pattern": "attention.sliding_window_pattern",
    "rope_local_base_freq": "rope.freq_base_swa",
}
RULES: Mapping[str, MetadataRule] = {
    "llama": MetadataRule(
        model_type="llama", settings=_SIZES, more=_llama, neighbours_rotate=True, writes=tuple(_EXPERTS.values())[:2]
    ),
    "mistral": MetadataRule(model_type="llama", settings=_SIZES, more=_llama, neighbours_rotate=True),
    "smollm3": MetadataRule(model_type="smollm3", settings=_SIZES, more=_smollm3, neighbours_rotate=True),
    "granite": MetadataRule(
        model_type="granite",
        settings={
            **_SIZES,
            "attention_multiplier": "attention.scale",
            "embedding_multiplier": "embedding_scale",
            "residual_multiplier": "residual_scale",
            "logits_scaling": "logit_scale",
        },
        more=_granite,
        neighbours_rotate=True,
    ),
    "qwen2": MetadataRule(model_type="qwen2", settings={k: v for k, v in _SIZES.items() if k != "head_dim"}),
    "qwen2moe": MetadataRule(
        model_type="qwen2_moe",
        settings={k: v for k, v in _MOE.items() if k != "head_dim"},
        more=_qwen2_moe,
        writes=("expert_shared_feed_forward_length",),
    ),
    "qwen3": MetadataRule(model_type="qwen3", settings=_SIZES),
    "qwen3moe": MetadataRule(
        model_type="qwen3_moe",
        settings=_MOE,
        constants={"norm_topk_prob": True, "sliding_window": None},
        more=_qwen2_moe,
    ),
    "gemma": MetadataRule(model_type="gemma", settings=_SIZES, more=_gemma, norms_plus_one=True),
    "gemma2": MetadataRule(
        model_type="gemma2",
        settings={
            **_GEMMA,
            "attn_logit_softcapping": "attn_logit_softcapping",
            "final_logit_softcapping": "final_logit_softcapping",
        },
        more=_gemma,
        norms_plus_one=True,
    ),
    "gemma3": MetadataRule(model_type="gemma3_text", settings=_GEMMA3, more=_gemma, norms_plus_one=True),
    "phi3": MetadataRule(
        model_type="phi3",
        settings={k: v for k, v in {**_SIZES, **_WINDOW}.items() if k != "head_dim"},
        more=_phi3,
        fused=("attn_qkv", "ffn_up"),
    ),
    "olmo2": MetadataRule(model_type="olmo2", settings={k: v for k, v in _SIZES.items() if k != "head_dim"}),
    "gpt2": MetadataRule(
        model_type="gpt2",
        settings={
            "n_positions": "context_length",
            "n_embd": "embedding_length",
            "n_layer": "block_count",
            "n_head": "attention.head_count",
            "n_inner": "feed_forward_length",
            "layer_norm_epsilon": "attention.layer_norm_epsilon",
        },
        more=_gpt2,
        fused=("attn_qkv",),
    ),
    "gptneox": MetadataRule(
        model_type="gpt_neox",
        settings={
            **_PLAIN,
            "layer_norm_eps": "attention.layer_norm_epsilon",
            "use_parallel_residual": "use_parallel_residual",
            "rope_theta": "rope.freq_base",
        },
        more=_gpt_neox,
        fused=("attn_qkv",),
    ),
    "deepseek2": MetadataRule(
        model_type="deepseek_v2",
        settings={
            **{k: v for k, v in _SIZES.items() if k != "head_dim"},
            "kv_lora_rank": "attention.kv_lora_rank",
            "n_routed_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
            "n_shared_experts": "expert_shared_count",
            "moe_intermediate_size": "expert_feed_forward_length",
            "first_k_dense_replace": "leading_dense_block_count",
        },
        more=_deepseek,
        writes=(
            "attention.q_lora_rank",
            "expert_gating_func",
            "expert_weights_norm",
            "expert_weights_scale",
            "expert_group_count",
            "expert_group_used_count",
        ),
    ),
}
"""Rules by the architecture that a file names."""
