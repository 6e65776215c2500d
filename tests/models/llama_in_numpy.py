"""The Llama decoder in float64, written from the published formulas, as a reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def inverse_frequencies(
    settings: Mapping[str, Any], dim: int, theta: float, positions: int
) -> tuple[np.ndarray, float]:
    """Return the rotary frequency of each pair of features, and the factor of cosines and sines."""
    kind, out, factor = settings.get("rope_type", "default"), [], settings.get("factor", 1.0)
    length = settings.get("original_max_position_embeddings", positions)
    for pair in range(dim // 2):
        angle = theta ** (-2 * pair / dim)
        wave = 2 * math.pi / angle
        if kind == "linear":
            angle /= factor
        elif kind == "llama3":
            low, high = settings["low_freq_factor"], settings["high_freq_factor"]
            if wave > length / low:
                angle /= factor
            elif wave >= length / high:
                smooth = (length / wave - low) / (high - low)
                angle = (1 - smooth) * angle / factor + smooth * angle
        elif kind == "yarn":
            fast, slow = settings.get("beta_fast", 32), settings.get("beta_slow", 1)

            def pair_of(turns: float) -> float:
                return dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

            first, last = max(math.floor(pair_of(fast)), 0), min(math.ceil(pair_of(slow)), dim - 1)
            ramp = min(max((pair - first) / (last - first), 0), 1)
            angle = angle / factor * ramp + angle * (1 - ramp)
        out.append(angle)
    magnitude = 0.1 * math.log(factor) + 1 if kind == "yarn" and factor > 1 else 1.0
    return np.array(out), settings.get("attention_factor") or magnitude


def _normed(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def _rotated(x: np.ndarray, angles: np.ndarray, magnitude: float) -> np.ndarray:
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos, sin = np.cos(angles) * magnitude, np.sin(angles) * magnitude
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def logits(config: Mapping[str, Any], state: Mapping[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """Return the logits (T, V) of a sequence (T,), for settings of `config.json` and weights with Hugging Face's names."""
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    width = config["hidden_size"] // heads
    rotary = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = rotary.get("rope_theta") or config.get("rope_theta") or 10000.0
    frequencies, magnitude = inverse_frequencies(rotary, width, theta, config["max_position_embeddings"])
    angles = np.arange(len(ids))[:, None] * frequencies
    later = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    x = state["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        w = {k.removeprefix(f"model.layers.{i}."): v for k, v in state.items()}
        h = _normed(x, w["input_layernorm.weight"], config["rms_norm_eps"])
        q, k, v = (
            (h @ w[f"self_attn.{n}_proj.weight"].T).reshape(len(ids), c, width).transpose(1, 0, 2)
            for n, c in (("q", heads), ("k", kv), ("v", kv))
        )
        q, k = (_rotated(y, angles, magnitude) for y in (q, k))
        k, v = (np.repeat(y, heads // kv, 0) for y in (k, v))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(width) + later
        share = np.exp(scores - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        x = x + (share @ v).transpose(1, 0, 2).reshape(len(ids), -1) @ w["self_attn.o_proj.weight"].T
        h = _normed(x, w["post_attention_layernorm.weight"], config["rms_norm_eps"])
        gate = h @ w["mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["mlp.up_proj.weight"].T)) @ w["mlp.down_proj.weight"].T
    return _normed(x, state["model.norm.weight"], config["rms_norm_eps"]) @ state["lm_head.weight"].T
