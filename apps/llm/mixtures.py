"""Formats of the tensors of a quantised file, as llama.cpp chooses them: more bits where errors cost most."""

from __future__ import annotations

import re
from dataclasses import dataclass

from polyhal.hal.errors import SettingError, message
from polyhal.llm.files.tensor_types import TYPES_BY_NAME

_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.weight")
_FALLBACKS = {"q2_k": "iq4_nl", "q3_k": "iq4_nl", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""Formats for rows that do not fill blocks of 256."""
_KEPT = ("ffn_gate_inp", "position_embd", "token_types", "ssm_", "altup", "_norm")
"""Parts of names of tensors that stay as they are."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """A type of files: its number in `general.file_type`, and the format of most tensors."""

    name: str
    number: int
    base: str


MIXTURES = {
    m.name: m
    for m in (
        Mixture("f32", 0, "f32"),
        Mixture("f16", 1, "f16"),
        Mixture("bf16", 32, "bf16"),
        Mixture("q8_0", 7, "q8_0"),
        Mixture("q4_0", 2, "q4_0"),
        Mixture("q4_1", 3, "q4_1"),
        Mixture("q5_0", 8, "q5_0"),
        Mixture("q5_1", 9, "q5_1"),
        Mixture("q2_k", 10, "q2_k"),
        Mixture("q3_k_s", 11, "q3_k"),
        Mixture("q3_k_m", 12, "q3_k"),
        Mixture("q3_k_l", 13, "q3_k"),
        Mixture("q4_k_s", 14, "q4_k"),
        Mixture("q4_k_m", 15, "q4_k"),
        Mixture("q5_k_s", 16, "q5_k"),
        Mixture("q5_k_m", 17, "q5_k"),
        Mixture("q6_k", 18, "q6_k"),
        Mixture("iq4_nl", 25, "iq4_nl"),
        Mixture("mxfp4", 38, "mxfp4"),
    )
}
"""Types by name."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a model on which the choice depends."""

    layers: int
    heads_per_key: int
    experts: int
    is_tied: bool


def format_for(name: str, shape: tuple[int, ...], mixture: Mixture, model: ModelShape) -> str | None:
    """Return the format of a tensor; None if it stays as it is."""
    if len(shape) < 2 or not name.endswith(".weight") or any(part in name for part in _KEPT):
        return None
    if mixture.base in ("f32", "f16", "bf16"):
        return mixture.base
    found = _chosen(name, mixture, model)
    if shape[-1] % TYPES_BY_NAME[found].block:
        found = _FALLBACKS.get(found, found)
    return "f16" if shape[-1] % TYPES_BY_NAME[found].block else found


def _chosen(name: str, mixture: Mixture, model: ModelShape) -> str:
    kind, base = mixture.name, mixture.base
    if name == "output.weight" or (name == "token_embd.weight" and model.is_tied):
        return base if base == "q8_0" else ("q8_0" if kind == "mxfp4" else "q6_k")
    match = _LAYER.fullmatch(name)
    if match is None or kind in ("q8_0", "mxfp4") or not base.endswith("_k"):
        return base
    layer, part = int(match[1]), match[2]
    if part == "attn_v":
        return _values(kind, base, layer, model)
    if part == "attn_k" and model.experts == 8:
        return "q8_0"
    if part in ("ffn_down", "ffn_down_exps"):
        return _down(kind, base, layer, model.layers)
    if part == "attn_output":
        if model.experts == 8:
            return "q5_k" if kind in ("q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m") else base
        return {"q2_k": "q3_k", "q3_k_m": "q4_k", "q3_k_l": "q5_k"}.get(kind, base)
    if part == "attn_qkv":
        return {"q3_k_m": "q4_k", "q3_k_l": "q4_k", "q4_k_m": "q5_k", "q5_k_m": "q6_k"}.get(kind, base)
    return base


def _values(kind: str, base: str, layer: int, model: ModelShape) -> str:
    if model.experts == 8:
        return "q8_0"
    found = base
    if kind == "q2_k":
        found = "q4_k" if model.heads_per_key >= 4 else "q3_k"
    elif kind == "q3_k_m":
        found = "q5_k" if layer < 2 else "q4_k"
    elif kind == "q3_k_l":
        found = "q5_k"
    elif kind in ("q4_k_m", "q5_k_m") and more_bits(layer, model.layers):
        found = "q6_k"
    elif kind == "q4_k_s" and layer < 4:
        found = "q5_k"
    if model.layers == 80 and found in ("q3_k", "q4_k"):  # 70B: eight query heads share each key
        found = "q5_k"
    return found


def _down(kind: str, base: str, layer: int, layers: int) -> str:
    if kind == "q2_k":
        return "q3_k"
    if kind == "q3_k_m":
        return "q5_k" if layer < layers // 16 else "q4_k"
    if kind == "q3_k_l":
        return "q5_k"
    if kind in ("q4_k_m", "q5_k_m"):
        return "q6_k" if more_bits(layer, layers) else base
    return "q5_k" if kind == "q4_k_s" and layer < layers // 8 else base


def more_bits(layer: int, layers: int) -> bool:
    """Return whether a layer is among the first and last eighth, or every third of the others."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def mixture_named(name: str) -> Mixture:
    """Return a type. Raises SettingError for an unknown name."""
    if name.lower() not in MIXTURES:
        raise SettingError(message("quantize", f"type {name!r}", expected=f"one of {', '.join(MIXTURES)}"))
    return MIXTURES[name.lower()]
