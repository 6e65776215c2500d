"""Names of a decoder's parameters in checkpoints of Hugging Face, and the parts of fused tensors that they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhal.hal.errors import message
from polyhal.models.architectures import DecoderArchitecture
from polyhal.models.config_json import architecture_of, read_config
from polyhal.models.decoder_config import DecoderConfig
from polyhal.models.decoder_layers import norm_names

_PREFIXES = ("", "language_model.", "model.")
"""Prefixes of names in some checkpoints: models of several modalities have `language_model.`."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a checkpoint has a parameter."""

    names: tuple[str, ...]
    """Name of the tensor; of experts, a name per expert, whose tensors are stacked."""
    start: int = 0
    size: int | None = None
    period: int | None = None
    """Rows of a fused tensor: `size` rows from `start`, in every `period` rows; all rows if `size` is None."""
    transposed: bool = False
    """True if the tensor has the axes (in, out)."""

    def rows(self, count: int) -> np.ndarray | slice:
        """Return the parameter's rows among the `count` rows of a fused tensor, as an index."""
        if self.size is None or self.period is None:
            return slice(self.start, None if self.size is None else self.start + self.size)
        first = np.arange(self.start, count, self.period)
        return (first[:, None] + np.arange(self.size)).reshape(-1)

    def read(self, tensor: Callable[[str], np.ndarray]) -> np.ndarray:
        """Return the parameter's values; `tensor` returns the tensor with a name, which may be rows of quantised blocks."""
        found = [self.part(tensor(name)) for name in self.names]
        return found[0] if len(found) == 1 else np.stack(found)

    def part(self, value: np.ndarray) -> np.ndarray:
        """Return the parameter's values in a tensor, in the decoder's order of axes."""
        value = value.T if self.transposed else value
        return value if self.size is None else value[self.rows(len(value))]

    def write(self, value: np.ndarray, part: np.ndarray) -> None:
        """Replace the parameter's values in a tensor."""
        value = value.T if self.transposed else value
        value[slice(None) if self.size is None else self.rows(len(value))] = part


def checkpoint_names(data: Mapping[str, Any]) -> dict[str, Stored]:
    """Return where a checkpoint with this `config.json` has each parameter and buffer of its `Decoder`."""
    kind, _ = architecture_of(data)
    config = read_config(data)
    return {name: _stored(name, kind, config) for name in parameter_names(config)}


def from_checkpoint(data: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state dict of the `Decoder` for this `config.json`, from the state dict of a checkpoint.

    Raises ValueError for a tensor that is missing.
    """
    return {name: stored.read(lambda n: _find(n, state)) for name, stored in checkpoint_names(data).items()}


def find_name(name: str, names: Mapping[str, Any]) -> str | None:
    """Return the name under which a mapping has a tensor: checkpoints may add or leave out the name of the inner model."""
    short = name.partition(".")[2]
    for prefix in _PREFIXES:
        if prefix + name in names:
            return prefix + name
    candidates = (f"model.language_model.{short}", short) if not name.startswith("lm_head.") else ()
    found = next((n for n in candidates if n in names), None)
    if found is None and "embed_out." in name:  # the output layer of GPT-NeoX in transformers 5
        return find_name(name.replace("embed_out.", "lm_head."), names)
    return found


def _find(name: str, state: Mapping[str, Any]) -> np.ndarray:
    found = find_name(name, state)
    if found is None:
        raise ValueError(message("from_checkpoint", f"the state has no {name}"))
    value = state[found]
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def parameter_names(c: DecoderConfig) -> Iterator[str]:
    """Yield the keys of a decoder's state dict."""
    biases = {True: ("weight", "bias"), False: ("weight",)}
    norm = biases[c.norm == "layer"]
    yield "model.embed_tokens.weight"
    if c.positions == "learned":
        yield "model.embed_positions.weight"
    for i in range(c.num_hidden_layers):
        layer = f"model.layers.{i}"
        for path, kinds in (*_attention(c, biases, norm), *_feed_forward(c, i, biases)):
            yield from (f"{layer}.{path}.{kind}" for kind in kinds)
        yield from (f"{layer}.{name}.{kind}" for name in norm_names(c) for kind in norm)
    yield from (f"model.norm.{kind}" for kind in norm)
    yield "lm_head.weight"


def _attention(
    c: DecoderConfig, biases: Mapping[bool, tuple[str, ...]], norm: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    given, none = biases[c.attention_bias], biases[False]
    if c.latent is None:
        yield from ((f"self_attn.{kind}_proj", given) for kind in "qkv")
        if c.query_key_norm is not None:
            yield from ((f"self_attn.{kind}_norm", norm) for kind in "qk")
    else:
        if c.latent.query_rank is None:
            yield "self_attn.q_proj", none
        else:
            yield from (("self_attn.q_a_proj", given), ("self_attn.q_a_layernorm", norm), ("self_attn.q_b_proj", none))
        yield from (("self_attn.kv_a_proj_with_mqa", given), ("self_attn.kv_a_layernorm", norm))
        yield "self_attn.kv_b_proj", none
    yield "self_attn.o_proj", biases[c.output_bias]


def _feed_forward(
    c: DecoderConfig, layer: int, biases: Mapping[bool, tuple[str, ...]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    projections = ("gate_proj", "up_proj", "down_proj") if c.gated else ("up_proj", "down_proj")
    e = c.experts
    if e is None or not c.has_experts(layer):
        yield from ((f"mlp.{kind}", biases[c.mlp_bias]) for kind in projections)
        return
    yield "mlp.gate", ("weight", "e_score_correction_bias") if e.correction else ("weight",)
    yield from ((f"mlp.experts.{kind}", ("weight",)) for kind in projections)
    if e.shared_size:
        yield from ((f"mlp.shared_expert.{kind}", biases[c.mlp_bias]) for kind in projections)
    if e.shared_gate:
        yield "mlp.shared_expert_gate", ("weight",)


def _stored(name: str, kind: DecoderArchitecture, c: DecoderConfig) -> Stored:
    if name == "lm_head.weight" and c.tie_word_embeddings:
        return _stored("model.embed_tokens.weight", kind, c)
    start, size, period = 0, None, None
    sizes = {"gate_proj": c.intermediate_size, "up_proj": c.intermediate_size}
    sizes |= {"q_proj": c.num_attention_heads * c.head_width, "k_proj": c.kv_heads * c.head_width}
    sizes["v_proj"] = sizes["k_proj"]
    for together, (fused, order) in kind.fused.items():
        projections = together.split()
        for i, projection in enumerate(projections):
            if f".{projection}." in name:
                name = name.replace(projection, fused)
                widths = [sizes[p] if order == "after" else c.head_width for p in projections]
                start, size = sum(widths[:i]), widths[i]
                period = sum(widths) if order == "per head" else None
    for ours, theirs in kind.names.items():
        name = name.replace(ours, theirs)
    count = 0 if c.experts is None else c.experts.count
    names = tuple(name.format(e) for e in range(count)) if "{}" in name else (name,)
    return Stored(names, start, size, period, any(part in name for part in kind.transposed))
