"""Settings of a decoder as metadata of GGUF files: the inverse of `gguf_config`, which reads them back as a check."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from polyhal.hal.errors import IncompatibleFileError, message
from polyhal.llm.files.gguf_config import RULES, config_of
from polyhal.llm.files.model_files import StoredWeight
from polyhal.models import DecoderConfig, RopeScaling

_VALUES: Mapping[str, Callable[[DecoderConfig], Any]] = {
    "context_length": lambda c: c.max_position_embeddings,
    "embedding_length": lambda c: c.hidden_size,
    "block_count": lambda c: c.num_hidden_layers,
    "feed_forward_length": lambda c: c.intermediate_size,
    "vocab_size": lambda c: c.vocab_size,
    "attention.head_count": lambda c: c.num_attention_heads,
    "attention.head_count_kv": lambda c: c.kv_heads,
    "attention.key_length": lambda c: c.head_width,
    "attention.value_length": lambda c: c.head_width if c.latent is None else c.latent.value_width,
    "attention.layer_norm_rms_epsilon": lambda c: None if c.norm == "layer" else float(c.norm_eps),
    "attention.layer_norm_epsilon": lambda c: float(c.norm_eps) if c.norm == "layer" else None,
    "rope.dimension_count": lambda c: c.rotary_width if c.positions == "rotary" else None,
    "rope.freq_base": lambda c: c.rope_theta if c.positions == "rotary" else None,
}
"""Values by key, without the architecture, of all files. None is left out."""
_MORE_VALUES: Mapping[str, Callable[[DecoderConfig], Any]] = {
    "rope.freq_base_swa": lambda c: c.window_rope_theta,
    "attention.sliding_window": lambda c: c.sliding_window,
    "attention.sliding_window_pattern": lambda c: _period(c),
    "attention.scale": lambda c: c.attention_scale,
    "attention.q_lora_rank": lambda c: None if c.latent is None else c.latent.query_rank,
    "attention.kv_lora_rank": lambda c: None if c.latent is None else c.latent.rank,
    "attn_logit_softcapping": lambda c: c.attention_softcap,
    "final_logit_softcapping": lambda c: c.logit_softcap,
    "embedding_scale": lambda c: float(c.embedding_scale),
    "residual_scale": lambda c: float(c.residual_scale),
    "logit_scale": lambda c: 1 / c.logit_scale,
    "use_parallel_residual": lambda c: c.parallel_residual,
    "expert_count": lambda c: c.experts and c.experts.count,
    "expert_used_count": lambda c: c.experts and c.experts.per_token,
    "expert_shared_count": lambda c: c.experts and c.experts.shared_size // c.experts.intermediate_size,
    "expert_feed_forward_length": lambda c: c.experts and c.experts.intermediate_size,
    "expert_shared_feed_forward_length": lambda c: c.experts and (c.experts.shared_size or None),
    "expert_gating_func": lambda c: c.experts and 1 + (c.experts.scores == "sigmoid"),
    "expert_weights_norm": lambda c: c.experts and c.experts.normalised,
    "expert_weights_scale": lambda c: c.experts and float(c.experts.scale),
    "expert_group_count": lambda c: c.experts and c.experts.groups,
    "expert_group_used_count": lambda c: c.experts and c.experts.groups_kept,
    "leading_dense_block_count": lambda c: c.experts and min(c.experts.layers or (0,)),
}
"""Values of architectures that read the key."""
_WITHOUT_EFFECT = (
    "initializer_range",
    "head_dim",
    "num_key_value_heads",
    "sliding_window",
    "window_layers",
    "rope_scaling",
    "layers",
)
"""Fields of configurations that are compared in another form, or not at all."""
_ROUNDING = 1e-6
"""Maximum relative difference of numbers that were rounded to float32."""


def architecture_for(config: Mapping[str, Any]) -> str:
    """Return the architecture that files name for the model of a `config.json`. Raises IncompatibleFileError."""
    kind = str(config.get("model_type") or "llama")
    kind = {"mistral": "llama", "mixtral": "llama", "gemma3": "gemma3_text", "deepseek_v3": "deepseek_v2"}.get(
        kind, kind
    )
    found = next((name for name, rule in RULES.items() if rule.model_type == kind), None)
    if found is None:
        known = ", ".join(sorted({rule.model_type for rule in RULES.values()}))
        problem = f"GGUF files of model_type {kind!r} are unknown"
        raise IncompatibleFileError(message("quantize", problem, expected=f"one of {known}"))
    return found


def within_plain_context(config: DecoderConfig, architecture: str) -> DecoderConfig:
    """Return a configuration whose context is so short that windows and scalings that a file cannot state have no effect."""
    c, rule = config, RULES[architecture]
    if c.sliding_window is not None and "attention.sliding_window" not in rule.settings.values():
        length = min(c.sliding_window, c.max_position_embeddings)
        c = replace(c, sliding_window=None, window_layers=None, max_position_embeddings=length)
    if c.rope_scaling is not None and c.rope_scaling.rope_type == "dynamic":
        c = replace(c, rope_scaling=None)  # it acts beyond `max_position_embeddings`
    return c


def metadata_of(config: DecoderConfig, architecture: str) -> dict[str, Any]:
    """Return the metadata of an architecture for a configuration."""
    rule = RULES[architecture]
    more = {*rule.settings.values(), *rule.writes} & _MORE_VALUES.keys()
    values = {**_VALUES, **{key: _MORE_VALUES[key] for key in sorted(more)}}
    found = {f"{architecture}.{key}": value for key, get in values.items() if (value := get(config)) is not None}
    scaling = config.rope_scaling
    if scaling is not None:
        found |= {f"{architecture}.rope.scaling.{k}": v for k, v in _scaling(scaling).items() if v is not None}
    return {"general.architecture": architecture, **found}


def rotary_tensors(config: DecoderConfig) -> dict[str, np.ndarray]:
    """Return the divisors of rotary frequencies that files have as tensors, float32 (pairs,)."""
    scaling, width, base = config.rope_scaling, config.rotary_width, config.rope_theta
    if scaling is None or scaling.rope_type not in ("llama3", "longrope"):
        return {}
    plain = base ** (-np.arange(0, width, 2) / width)
    if scaling.rope_type == "llama3":
        return {"rope_freqs.weight": (plain / scaling.frequencies(width, base)[0]).astype(np.float32)}
    return {
        f"rope_factors_{name}.weight": np.array(values, np.float32)
        for name, values in (("long", scaling.long_factor), ("short", scaling.short_factor))
    }


def check_round_trip(
    config: DecoderConfig, metadata: Mapping[str, Any], tensors: Mapping[str, StoredWeight], name: str
) -> None:
    """Raise IncompatibleFileError, with the names of the settings, if a reader returns another configuration."""
    again = DecoderConfig.from_json(config_of(metadata, tensors))
    lost = list(dict.fromkeys(_differences(config, again)))
    if lost:
        architecture = metadata["general.architecture"]
        problem = f"files of architecture {architecture} cannot state {', '.join(lost)} of {name}"
        raise IncompatibleFileError(message("quantize", problem, expected="settings that the format has"))


def _period(c: DecoderConfig) -> int | None:
    """Return the distance of layers without a window."""
    near = range(c.num_hidden_layers) if c.window_layers is None else c.window_layers
    return next((i + 1 for i in range(c.num_hidden_layers) if i not in near), c.num_hidden_layers + 1)


def _scaling(scaling: RopeScaling) -> dict[str, Any]:
    kind = scaling.rope_type
    if kind == "llama3":
        return {}  # a tensor
    trained = scaling.original_max_position_embeddings
    if kind == "longrope":
        return {
            "original_context_length": trained,
            "attn_factor": scaling.frequencies(2 * len(scaling.short_factor or ()), 10000.0)[1],
        }
    found: dict[str, Any] = {"type": kind, "factor": float(scaling.factor)}
    if kind == "yarn":
        found |= {"original_context_length": trained, "yarn_beta_fast": float(scaling.beta_fast)}
        found["yarn_beta_slow"] = float(scaling.beta_slow)
        if scaling.mscale_all_dim:
            found["yarn_log_multiplier"] = 0.1 * scaling.mscale_all_dim
        elif scaling.attention_factor is not None:
            found["attn_factor"] = scaling.attention_factor / (1 + 0.1 * math.log(scaling.factor))
    return found


def _differences(a: Any, b: Any) -> Iterator[str]:
    """Yield the names of settings that differ between two configurations."""
    for field in fields(a):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if is_dataclass(one) and is_dataclass(other) and type(one) is type(other) and field.name != "rope_scaling":
            yield from _differences(one, other)
        elif field.name not in _WITHOUT_EFFECT and not _equal(one, other) and not _is_unused(field.name, a):
            yield field.name
    if isinstance(a, DecoderConfig):
        layers = range(a.num_hidden_layers)
        for name in ("head_width", "kv_heads"):
            if getattr(a, name) != getattr(b, name):
                yield name
        if len(layers) != b.num_hidden_layers or any(_window(a, i) != _window(b, i) for i in layers):
            yield "sliding_window"
        if len(layers) == b.num_hidden_layers and any(a.has_experts(i) != b.has_experts(i) for i in layers):
            yield "layers without experts"
        if a.positions == "rotary" and not np.allclose(_rotations(a), _rotations(b), _ROUNDING, 0):
            yield "rope_scaling"


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and math.isclose(a, b, rel_tol=_ROUNDING)
    return bool(a == b)


def _is_unused(name: str, c: Any) -> bool:
    """Return whether a setting is the size of plain feed-forward networks, and all layers have experts."""
    return (
        name == "intermediate_size"
        and isinstance(c, DecoderConfig)
        and all(c.has_experts(i) for i in range(c.num_hidden_layers))
    )


def _window(c: DecoderConfig, layer: int) -> int | None:
    found = c.window(layer)
    return None if found is None or found >= c.max_position_embeddings else found


def _rotations(c: DecoderConfig) -> np.ndarray:
    """Return frequencies of short and of long sequences, the factors of cosines and sines, and the end of short ones."""
    width, base, scaling = c.rotary_width, c.rope_theta, c.rope_scaling
    if scaling is None:
        plain = base ** (-np.arange(0, width, 2) / width)
        return np.concatenate([plain, plain, [1.0, 1.0, 0]])
    short, magnitude = scaling.frequencies(width, base)
    long, other = (scaling.for_long_sequences or scaling).frequencies(width, base)
    ends = 0 if np.allclose(short, long, _ROUNDING, 0) else scaling.original_max_position_embeddings or 0
    return np.concatenate([short, long, [magnitude, other, ends]])
