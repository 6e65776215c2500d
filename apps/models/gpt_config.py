"""Settings of a GPT, also read from Hugging Face's `config.json` for `GPT2LMHeadModel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from polyhal.hal.errors import message
from polyhal.models.hugging_face import refuse_unknown, refuse_values

_NAMES = {
    "n_positions": "block_size",
    "n_ctx": "block_size",
    "layer_norm_epsilon": "layer_norm_eps",
    "tie_word_embeddings": "tie_weights",
}
"""Fields of `GPTConfig`, by Hugging Face's names."""

_DROPOUTS = ("attn_pdrop", "embd_pdrop", "resid_pdrop")

_ONLY: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "add_cross_attention": (False, None),
    "is_decoder": (False, True, None),
    "is_encoder_decoder": (False, None),
    "model_type": ("gpt2", None),
    "pruned_heads": ({}, None),
    "reorder_and_upcast_attn": (False, None),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "scale_attn_weights": (True, None),
}
"""Supported values of settings for which Hugging Face supports more."""

_WITHOUT_EFFECT = {
    "initializer_range",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
}
"""Settings of initial weights, and of heads other than the language model's."""


@dataclass(frozen=True, slots=True)
class GPTConfig:
    """Sizes of a GPT. The defaults are GPT-2's smallest model."""

    vocab_size: int = 50257
    block_size: int = 1024
    """Maximum context in tokens."""
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0
    bias: bool = True
    tie_weights: bool = True
    """Share the weights of the token embedding and the output layer."""
    layer_norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd"):
            if getattr(self, name) < 1:
                raise ValueError(message("GPTConfig", f"{name} is {getattr(self, name)}", expected="1 or more"))
        if not 0 <= self.dropout <= 1:
            raise ValueError(message("GPTConfig", f"dropout is {self.dropout}", expected="0 to 1"))
        if self.n_embd % self.n_head:
            raise ValueError(message("GPTConfig", f"n_embd {self.n_embd} is not a multiple of n_head {self.n_head}"))

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GPTConfig:
        """Read the settings of `to_json`, or Hugging Face's `config.json`, loaded as a dictionary.

        Raises ValueError for a setting that this model does not support or whose effect is unknown, and TypeError for a value
        of another type.
        """
        default = cls()
        refuse_values("GPTConfig", data, _ONLY)
        own = asdict(default).keys()
        refuse_unknown("GPTConfig", data, {*own, *_NAMES, *_DROPOUTS, *_ONLY, *_WITHOUT_EFFECT, "n_inner"})
        given = {_NAMES.get(k, k): v for k, v in data.items() if k in own or k in _NAMES}
        given |= _dropout(data)
        for name, value in given.items():
            kind = type(getattr(default, name))
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise TypeError(
                    message("GPTConfig", f"{name} is {value!r}", expected=f"a value of type {kind.__name__}")
                )
        made = replace(default, **given)
        if data.get("n_inner") not in (None, 4 * made.n_embd):
            raise ValueError(message("GPTConfig", f"n_inner is {data['n_inner']}", expected=str(4 * made.n_embd)))
        return made


def _dropout(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return Hugging Face's dropout probability as a setting, if there is one. Raises ValueError if several differ."""
    rates = {name: data[name] for name in _DROPOUTS if name in data}
    if not rates:
        return {}
    first, *others = rates.values()
    if any(rate != first for rate in others):
        problem = ", ".join(f"{name} is {rate}" for name, rate in rates.items())
        raise ValueError(message("GPTConfig", problem, expected="one probability"))
    return {"dropout": first}
