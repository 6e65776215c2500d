"""`config.json` of Hugging Face as a `DecoderConfig`: used settings, settings without effect, and rejected ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from polyhal.hal.errors import message
from polyhal.models.architectures import ARCHITECTURES, SETTINGS, DecoderArchitecture
from polyhal.models.decoder_config import DecoderConfig, ExpertConfig, LatentConfig
from polyhal.models.hugging_face import refuse_unknown, refuse_values
from polyhal.models.rope_scaling import RopeScaling, logarithmic
from polyhal.models.setting_types import check_numbers, check_types

_ONLY: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False, None),
    "attention_dropout": (0, None),
    "is_encoder_decoder": (False, None),
    "is_decoder": (False, True, None),
    "pruned_heads": ({}, None),
    "rope_interleaved": (False, None),
}
"""Supported values of settings of all architectures for which Hugging Face supports more."""

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
"""Activations by Hugging Face's names."""

_SPELLINGS = {
    "num_local_experts": "num_experts",
    "num_mtp_layers": "num_nextn_predict_layers",
    "_sliding_window_pattern": "sliding_window_pattern",
}
"""Settings that transformers 5 writes under another name."""


def architecture_of(data: Mapping[str, Any]) -> tuple[DecoderArchitecture, dict[str, Any]]:
    """Return the architecture of a `config.json`, and the settings of its decoder of text. Raises ValueError if it is unknown.

    Without `model_type` it is "llama".
    """
    kind = data.get("model_type") or "llama"
    if kind == "gemma3" and isinstance(data.get("text_config"), Mapping):
        return architecture_of({"model_type": "gemma3_text", **data["text_config"]})
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        expected = f"one of {', '.join(ARCHITECTURES)}"
        raise ValueError(message("DecoderConfig", f"model_type is {kind!r}", expected=expected))
    return ARCHITECTURES[kind], {k: v for k, v in data.items() if k != "model_type"}


def read_config(data: Mapping[str, Any]) -> DecoderConfig:
    """Return the configuration of `config.json`. Raises ValueError; see `DecoderConfig.from_json`."""
    kind, given = architecture_of(data)
    given = {_SPELLINGS.get(k, k) if _SPELLINGS.get(k) in kind.defaults else k: v for k, v in given.items()}
    refuse_values("DecoderConfig", given, {**_ONLY, **kind.only})
    refuse_unknown("DecoderConfig", given, {*kind.defaults, *_ONLY})
    check_types("DecoderConfig", given, kind.defaults)
    settings = {**kind.defaults, **given}
    found: dict[str, Any] = {}
    for name, targets in {**SETTINGS, **kind.reads}.items():
        if settings.get(name) is not None:
            found |= dict.fromkeys(targets, settings[name])
    found["activation"] = _activation(settings)
    found |= _rotary(settings)
    found |= kind.parts
    if found.get("positions") == "learned":
        found.setdefault("intermediate_size", 4 * found["hidden_size"])
    count = found["num_hidden_layers"]
    found |= _windows(settings, kind, count, found["max_position_embeddings"])
    found |= _scales(settings, found)
    found["layers_without_rotary"] = _without_rotary(settings, count)
    if kind.experts:
        found["experts"] = _experts(settings, kind, count)
    if "kv_lora_rank" in settings:
        found |= _latent(settings, found)
    elif found.get("head_dim") is None and found["hidden_size"] % found["num_attention_heads"] == 0:
        found["head_dim"] = found["hidden_size"] // found["num_attention_heads"]
    found["num_key_value_heads"] = found.get("num_key_value_heads") or found["num_attention_heads"]
    return DecoderConfig(**found)


def _activation(settings: Mapping[str, Any]) -> str:
    """Return the activation. `gelu` of old configurations of Gemma stands for the approximation by tanh."""
    name = next(
        settings[k] for k in ("hidden_activation", "hidden_act", "activation_function") if settings.get(k) is not None
    )
    if "hidden_activation" in settings and name == "gelu":
        name = "gelu_pytorch_tanh"
    if name not in _ACTIVATIONS:
        problem, expected = f"hidden_act is {name!r}", f"one of {', '.join(_ACTIVATIONS)}"
        raise ValueError(message("DecoderConfig", problem, expected=expected))
    return _ACTIVATIONS[name]


def _rotary(settings: Mapping[str, Any]) -> dict[str, Any]:
    rotary: Mapping[str, Any] = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    found: dict[str, Any] = {}
    if "rope_local_base_freq" in settings:
        parts = {name: rotary.get(name) or {} for name in ("sliding_attention", "full_attention")}
        if not all(isinstance(part, Mapping) for part in parts.values()):
            raise ValueError(message("DecoderConfig", f"rotary settings {dict(rotary)!r:.80}", expected="objects"))
        near: Mapping[str, Any] = parts["sliding_attention"]
        if near.get("rope_type", "default") != "default":
            raise ValueError(message("DecoderConfig", f"rotary settings {dict(near)}", expected="default"))
        rotary = rotary.get("full_attention") or {k: v for k, v in rotary.items() if k != "sliding_attention"}
        found["window_rope_theta"] = float(near.get("rope_theta") or settings["rope_local_base_freq"])
    theta = rotary.get("rope_theta") or settings.get("rope_theta") or settings.get("rotary_emb_base") or 10000.0
    stated = (rotary.get("partial_rotary_factor"), *map(settings.get, ("partial_rotary_factor", "rotary_pct")))
    share = next((x for x in stated if x is not None), 1.0)
    check_numbers("DecoderConfig", {"rope_theta": theta, "partial_rotary_factor": share}, (), ())
    positions = settings.get("max_position_embeddings") or settings.get("n_positions") or 0
    scaling = RopeScaling.from_json(rotary, positions, settings.get("original_max_position_embeddings"))
    return {**found, "rope_theta": float(theta), "rotary_share": float(share), "rope_scaling": scaling}


def _windows(settings: Mapping[str, Any], kind: DecoderArchitecture, count: int, positions: int) -> dict[str, Any]:
    """Return the sliding window and its layers; an empty dictionary if no layer has one."""
    window: Any = settings.get("sliding_window")
    is_used = window is not None and bool(settings.get("use_sliding_window", True))
    types = settings.get("layer_types")
    others = sorted({*(types or ())} - {"full_attention", *(["sliding_attention"] if kind.windows else [])})
    if others:
        raise ValueError(message("DecoderConfig", f"layer_types has {', '.join(others)}", expected="full_attention"))
    if kind.windows is None and is_used and window < positions:
        problem = f"sliding_window is {window} for {positions} positions"
        raise ValueError(message("DecoderConfig", problem, expected="attention to all earlier positions"))
    if kind.windows is None or not is_used:
        return {}
    if types is not None:
        layers = tuple(i for i, name in enumerate(types) if name == "sliding_attention")
    else:
        layers = tuple(i for i in range(count) if _is_near(i, kind, settings))
    if not layers:
        return {}
    return {
        "sliding_window": window if window < positions else None,
        "window_layers": layers if len(layers) < count else None,
    }


def _is_near(layer: int, kind: DecoderArchitecture, settings: Mapping[str, Any]) -> bool:
    if "no_rope_layers" in settings:
        return layer in _without_rotary(settings, layer + 1)
    if kind.windows == "period":
        return bool((layer + 1) % settings.get("sliding_window_pattern", 2))
    if kind.windows == "late":
        return bool(layer >= settings["max_window_layers"])
    if kind.windows == "early":
        return layer % 2 == 0 and layer < settings["max_window_layers"]
    return True


def _without_rotary(settings: Mapping[str, Any], count: int) -> tuple[int, ...]:
    if settings.get("no_rope_layers"):
        return tuple(i for i, rotates in enumerate(settings["no_rope_layers"][:count]) if not rotates)
    interval = settings.get("no_rope_layer_interval")
    return tuple(i for i in range(count) if interval and (i + 1) % interval == 0)


def _scales(settings: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    scales = {}
    if "use_bidirectional_attention" in settings:  # Gemma
        scales["embedding_scale"] = math.sqrt(found["hidden_size"])
    if settings.get("query_pre_attn_scalar"):
        scales["attention_scale"] = settings["query_pre_attn_scalar"] ** -0.5
    if settings.get("logits_scaling"):
        scales["logit_scale"] = 1 / settings["logits_scaling"]
    return scales


def _experts(settings: Mapping[str, Any], kind: DecoderArchitecture, count: int) -> ExpertConfig | None:
    given: dict[str, Any] = {field: settings[name] for field, name in kind.experts.items()} | {**kind.expert_parts}
    if not given["count"]:
        return None
    if "first_k_dense_replace" in settings:
        given["layers"] = tuple(range(settings["first_k_dense_replace"] or 0, count))
        given["shared_size"] = (settings["n_shared_experts"] or 0) * settings["moe_intermediate_size"]
        if settings["topk_method"] != "greedy":
            given |= {"groups": settings["n_group"] or 1, "groups_kept": settings["topk_group"] or 1}
    if "decoder_sparse_step" in settings:
        plain, step = settings["mlp_only_layers"] or (), settings["decoder_sparse_step"]
        given["layers"] = tuple(i for i in range(count) if i not in plain and (i + 1) % step == 0)
    if given.get("layers") == ():
        return None
    if given.get("layers") == tuple(range(count)):
        given["layers"] = None
    return ExpertConfig(**given)


def _latent(settings: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the latent attention of DeepSeek, whose scores are scaled by yarn."""
    latent = LatentConfig(
        settings["q_lora_rank"],
        settings["kv_lora_rank"],
        settings["qk_nope_head_dim"],
        settings["qk_rope_head_dim"],
        settings["v_head_dim"],
    )
    scale = (latent.plain_width + latent.rotary_width) ** -0.5
    scaling: RopeScaling | None = found["rope_scaling"]
    if scaling is not None and scaling.mscale_all_dim:
        scale *= logarithmic(scaling.factor, scaling.mscale_all_dim) ** 2
    return {"latent": latent, "attention_scale": scale, "head_dim": None, "num_key_value_heads": None}
