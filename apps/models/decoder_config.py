"""Parts and sizes of a `Decoder`, chosen by data, and read from Hugging Face's `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from polyhal.hal.errors import message
from polyhal.models.rope_scaling import RopeScaling

NORMS = ("rms", "rms_plus_one", "layer")
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")


@dataclass(frozen=True, slots=True)
class ExpertConfig:
    """Feed-forward networks, and a router that selects some for each token. Source: Shazeer et al., arXiv:1701.06538."""

    count: int
    per_token: int
    intermediate_size: int
    layers: tuple[int, ...] | None = None
    """Layers with experts; None for all. The others have one network of the decoder's `intermediate_size`."""
    shared_size: int = 0
    """Hidden units of the network for all tokens; 0 for none."""
    shared_gate: bool = False
    """Multiply the shared network's result by a sigmoid of its input."""
    scores: Literal["softmax", "sigmoid"] = "softmax"
    normalised: bool = False
    """Divide the weights of the selected experts by their sum."""
    scale: float = 1.0
    """Factor of the weights of the selected experts."""
    correction: bool = False
    """Select by scores plus a bias per expert, which does not change weights. Source: arXiv:2412.19437."""
    groups: int = 1
    groups_kept: int = 1
    """Number of groups of experts, and number of groups with selected experts."""
    group_scores: Literal["largest", "two"] = "largest"
    """A group's score: its largest one, or the sum of its two largest ones."""

    def __post_init__(self) -> None:
        if not 1 <= self.per_token <= self.count * self.groups_kept // self.groups or self.count % self.groups:
            problem = f"{self.per_token} of {self.count} experts in {self.groups_kept} of {self.groups} groups"
            raise ValueError(message("ExpertConfig", problem, expected="no more than the groups have"))


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Attention with keys and values made from a narrow latent vector. Source: DeepSeek-AI, arXiv:2405.04434."""

    query_rank: int | None
    """Width of the latent vector of queries; None to project the input."""
    rank: int
    """Width of the latent vector of keys and values."""
    plain_width: int
    rotary_width: int
    """Features of a query or key that are not rotated, followed by the rotated ones."""
    value_width: int


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and parts of a decoder. The defaults are the sizes of Llama 2 7B."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    """Number of key and value heads, shared by neighbouring query heads (Ainslie et al., arXiv:2305.13245); None for all."""
    max_position_embeddings: int = 4096
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    """Biases of the projections to queries, keys and values."""
    head_dim: int | None = None
    initializer_range: float = 0.02
    rope_scaling: RopeScaling | None = None
    """Scaling of rotary frequencies; None for `rope_theta**(-2 i / dim)`."""
    norm: Literal["rms", "rms_plus_one", "layer"] = "rms"
    """RMS norm, RMS norm times 1 + weight, or layer norm."""
    norm_places: Literal["before", "after", "both"] = "before"
    """Norms of the input of attention and feed-forward network, of their result, or of both."""
    parallel_residual: bool = False
    """Attention and feed-forward network have the same input. Source: Wang and Komatsuzaki, GPT-J-6B, 2021."""
    query_key_norm: Literal["head", "all"] | None = None
    """Norm of queries and keys, per head or over all heads, before they are rotated."""
    output_bias: bool = False
    """Bias of the projection of attention's result."""
    activation: str = "silu"
    gated: bool = True
    """Feed-forward networks multiply by a gate. Source: Shazeer, arXiv:2002.05202."""
    mlp_bias: bool = False
    positions: Literal["rotary", "learned"] = "rotary"
    rotary_share: float = 1.0
    """Share of a head's features that are rotated, from the first one."""
    rope_interleaved: bool = False
    """Pairs of rotated features are neighbours instead of half a head from each other."""
    layers_without_rotary: tuple[int, ...] = ()
    sliding_window: int | None = None
    """Number of positions, its own included, that a token attends to in `window_layers`; None for all earlier ones."""
    window_layers: tuple[int, ...] | None = None
    """Layers with a sliding window; None for all."""
    window_rope_theta: float | None = None
    """Rotary base in `window_layers`, whose frequencies are not scaled; None for the base of all layers."""
    attention_scale: float | None = None
    """Factor of the scores; None for 1 / sqrt(head width)."""
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    """Bounds of scores and logits: x becomes c tanh(x / c). Source: Gemma Team, arXiv:2408.00118."""
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    """Factor of the results of attention and feed-forward networks."""
    logit_scale: float = 1.0
    experts: ExpertConfig | None = None
    latent: LatentConfig | None = None

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "kv_heads"):
            if getattr(self, name) < 1:
                raise ValueError(message("DecoderConfig", f"{name} is {getattr(self, name)}", expected="1 or more"))
        if self.hidden_size % self.num_attention_heads and self.head_dim is None:
            problem = f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads"
            raise ValueError(message("DecoderConfig", f"{problem} {self.num_attention_heads}"))
        if self.num_attention_heads % self.kv_heads:
            heads, expected = f"num_attention_heads {self.num_attention_heads}", f"num_key_value_heads {self.kv_heads}"
            raise ValueError(message("DecoderConfig", f"{heads} is not a multiple of {expected}"))
        width, most = self.rotary_width, self.head_width
        if self.positions == "rotary" and (width % 2 or not 2 <= width <= most):
            problem = f"{width} of {most} features per head are rotated, a share of {self.rotary_share:g}"
            raise ValueError(message("DecoderConfig", problem, expected=f"an even number from 2 to {most}"))
        for name, known in (("activation", ACTIVATIONS), ("norm", NORMS)):
            if getattr(self, name) not in known:
                problem = f"{name} is {getattr(self, name)!r}"
                raise ValueError(message("DecoderConfig", problem, expected=f"one of {', '.join(known)}"))

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_width(self) -> int:
        """Features per head of queries and keys."""
        if self.latent is not None:
            return self.latent.plain_width + self.latent.rotary_width
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def rotary_width(self) -> int:
        """Rotated features per head."""
        return self.latent.rotary_width if self.latent is not None else int(self.head_width * self.rotary_share)

    def window(self, layer: int) -> int | None:
        """Return the sliding window of a layer; None for all earlier positions."""
        inside = self.window_layers is None or layer in self.window_layers
        return self.sliding_window if inside else None

    def has_experts(self, layer: int) -> bool:
        """Return whether a layer has experts."""
        return self.experts is not None and (self.experts.layers is None or layer in self.experts.layers)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DecoderConfig:
        """Read Hugging Face's `config.json`, loaded as a dictionary, of transformers 4 or 5. See `ARCHITECTURES`.

        Raises ValueError for settings that the decoder does not support, and for settings whose effect is unknown.
        """
        from polyhal.models.config_json import read_config

        return read_config(data)
