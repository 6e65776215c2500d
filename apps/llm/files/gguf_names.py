"""Names of tensors in GGUF files and of the decoder's parameters, in both directions."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from polyhal.models import DecoderConfig

_NAMES: dict[str, tuple[str, ...]] = {
    "model.embed_tokens": ("token_embd",),
    "model.embed_positions": ("position_embd",),
    "model.norm": ("output_norm",),
    "lm_head": ("output", "token_embd"),
}
_LAYER_NAMES: dict[str, tuple[str, ...]] = {
    "self_attn.q_proj": ("attn_q", "attn_qkv"),
    "self_attn.k_proj": ("attn_k", "attn_qkv"),
    "self_attn.v_proj": ("attn_v", "attn_qkv"),
    "self_attn.o_proj": ("attn_output",),
    "self_attn.q_norm": ("attn_q_norm",),
    "self_attn.k_norm": ("attn_k_norm",),
    "self_attn.q_a_proj": ("attn_q_a",),
    "self_attn.q_a_layernorm": ("attn_q_a_norm",),
    "self_attn.q_b_proj": ("attn_q_b",),
    "self_attn.kv_a_proj_with_mqa": ("attn_kv_a_mqa",),
    "self_attn.kv_a_layernorm": ("attn_kv_a_norm",),
    "self_attn.kv_b_proj": ("attn_kv_b",),
    "input_layernorm": ("attn_norm",),
    "post_attention_layernorm": ("post_attention_norm", "ffn_norm"),
    "pre_feedforward_layernorm": ("ffn_norm",),
    "post_feedforward_layernorm": ("post_ffw_norm",),
    "mlp.gate_proj": ("ffn_gate", "ffn_up"),
    "mlp.up_proj": ("ffn_up",),
    "mlp.down_proj": ("ffn_down",),
    "mlp.gate": ("ffn_gate_inp",),
    "mlp.experts.gate_proj": ("ffn_gate_exps",),
    "mlp.experts.up_proj": ("ffn_up_exps",),
    "mlp.experts.down_proj": ("ffn_down_exps",),
    "mlp.shared_expert.gate_proj": ("ffn_gate_shexp",),
    "mlp.shared_expert.up_proj": ("ffn_up_shexp",),
    "mlp.shared_expert.down_proj": ("ffn_down_shexp",),
    "mlp.shared_expert_gate": ("ffn_gate_inp_shexp",),
}
"""Tensors by the decoder's layers; a name that serves several layers is a tensor of all their rows."""
FUSED: Mapping[str, tuple[str, ...]] = {"attn_qkv": ("q_proj", "k_proj", "v_proj"), "ffn_up": ("gate_proj", "up_proj")}
"""Layers, in the order of their rows, by tensors that hold several."""
_CORRECTION = "e_score_correction_bias"


def candidates(parameter: str) -> tuple[str, list[str]]:
    """Return a prefix, and the names after it under which files may have a parameter; a reader takes the first that exists."""
    layer, kind = parameter.rsplit(".", 1)
    match = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", layer)
    prefix = f"blk.{match[1]}." if match else ""
    if kind == _CORRECTION:
        return prefix, ["exp_probs_b.bias", "exp_probs_b"]
    known = _LAYER_NAMES.get(match[2], ()) if match else _NAMES.get(layer, ())
    return prefix, [f"{name}.{kind}" for name in known]


def name_in_file(parameter: str, config: DecoderConfig, fused: tuple[str, ...]) -> str:
    """Return the tensor in which a file has a parameter, for an architecture that has the tensors `fused`."""
    prefix, names = candidates(parameter)
    layer = layer_of(parameter)
    if layer == "post_attention_layernorm" and config.norm_places == "before":
        return prefix + names[-1]
    for name in names:
        tensor = name.partition(".")[0]
        if tensor in fused and layer in FUSED[tensor]:
            return prefix + name
    return prefix + names[0]


def layer_of(parameter: str) -> str:
    """Return the last part of a layer's name, such as `q_proj`."""
    return parameter.rsplit(".", 2)[-2]


def rows_of_pairs(first: int, count: int, width: int) -> np.ndarray:
    """Return the rows of a file's queries or keys in the decoder's order.

    Rotated pairs are neighbours in the file, and at a distance of half a head, of `width` features, in the decoder.
    """
    pairs = np.arange(first, first + count).reshape(-1, width // 2, 2)
    return pairs.transpose(0, 2, 1).reshape(-1)
