"""Settings of Hugging Face's `config.json` for `LlamaForCausalLM`: used, without effect, and rejected ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from polyhal.hal.errors import message
from polyhal.models.hugging_face import refuse_unknown, refuse_values
from polyhal.models.rope_scaling import RopeScaling

_ONLY: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False, None),
    "attention_dropout": (0, None),
    "hidden_act": ("silu", "swish"),
    "is_encoder_decoder": (False, None),
    "is_decoder": (False, True, None),
    "mlp_bias": (False, None),
    "model_type": ("llama", "mistral", None),
    "pruned_heads": ({}, None),
    "rope_interleaved": (False, None),
}
"""Supported values of settings for which Hugging Face supports more."""

_ROTARY = ("rope_parameters", "rope_scaling")


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes of a Llama. The defaults are the sizes of Llama 2 7B."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    """Number of key and value heads, shared by neighbouring query heads (Ainslie et al., arXiv:2305.13245); None for all."""
    max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    head_dim: int | None = None
    initializer_range: float = 0.02
    rope_scaling: RopeScaling | None = None
    """Scaling of rotary frequencies; None for `rope_theta**(-2 i / head_dim)`."""

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads and self.head_dim is None:
            problem = (
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
            raise ValueError(message("LlamaConfig", problem))
        if self.num_attention_heads % self.kv_heads:
            heads, expected = f"num_attention_heads {self.num_attention_heads}", f"num_key_value_heads {self.kv_heads}"
            raise ValueError(message("LlamaConfig", f"{heads} is not a multiple of {expected}"))

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_width(self) -> int:
        """Features per head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LlamaConfig:
        """Read Hugging Face's `config.json`, loaded as a dictionary, of transformers 4 or 5.

        Raises ValueError for settings that this decoder does not support, and for settings whose effect is unknown.
        """
        names = {f.name for f in fields(cls)}
        _refuse_others(data, names)
        given = {k: v for k, v in data.items() if k in names and k not in _ROTARY and v is not None}
        positions = int(given.get("max_position_embeddings", cls().max_position_embeddings))
        _check_window(data, positions)
        rotary: Mapping[str, Any] = next((data[k] for k in _ROTARY if data.get(k)), {})
        if rotary.get("rope_theta") is not None:
            given["rope_theta"] = rotary["rope_theta"]
        return cls(**given, rope_scaling=RopeScaling.from_json(rotary, positions))


def _refuse_others(data: Mapping[str, Any], used: set[str]) -> None:
    refuse_values("LlamaConfig", data, _ONLY)
    refuse_unknown(
        "LlamaConfig", data, used | _ONLY.keys() | {*_ROTARY, "layer_types", "sliding_window", "use_sliding_window"}
    )


def _check_window(data: Mapping[str, Any], positions: int) -> None:
    """Reject sliding-window attention, unless the window is as long as the context."""
    window = data.get("sliding_window")
    if window is not None and window < positions and data.get("use_sliding_window", True):
        problem = f"sliding_window is {window} for {positions} positions"
        raise ValueError(message("LlamaConfig", problem, expected="attention to all earlier positions"))
    others = sorted({*(data.get("layer_types") or ())} - {"full_attention"})
    if others:
        raise ValueError(message("LlamaConfig", f"layer_types has {', '.join(others)}", expected="full_attention"))
