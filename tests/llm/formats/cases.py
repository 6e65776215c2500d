"""Models with rows of 256 weights, so that every format has whole blocks, in the cases of docs/decoders.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import polyhal as ph
from polyhal.models import ARCHITECTURES, Decoder, DecoderConfig, checkpoint_names
from tests.models.architectures.cases import CASES as SMALL
from tests.models.architectures.cases import weights

_LEGACY = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
TYPES = ("f32", "f16", "bf16", *_LEGACY, "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k", "iq4_nl", "mxfp4")
"""Types of files, as `polyhal quantize` names them."""
LENGTH = 48
_WIDE = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "n_embd", "n_inner", "kv_lora_rank", "q_lora_rank"), 256),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 256),
    **dict.fromkeys(("head_dim", "query_pre_attn_scalar", "v_head_dim"), 64),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim"), 32),
    "decoder_sparse_step": 1,
}
"""Sizes in place of small ones; the last one since files of that architecture have experts in all layers."""
_FACTORS = {
    "type": "longrope",
    "short_factor": [1 + i / 50 for i in range(24)],
    "long_factor": [1.5 + i / 10 for i in range(24)],
}
_OTHERS: Mapping[str, Mapping[str, Any]] = {
    # Files cannot state their windows.
    "Mistral": {"sliding_window": None},
    "Qwen 2": {"use_sliding_window": False},
    # llama.cpp selects the factors by the size of its cache, 512, in place of the sequence's length.
    "Phi 3, longrope, short": {
        "original_max_position_embeddings": 512,
        "max_position_embeddings": 1024,
        "rope_scaling": _FACTORS,
    },
    "Phi 3, longrope, long": {"rope_scaling": _FACTORS},
    "Phi 3": {"sliding_window": None},  # llama.cpp ignores it
    "SmolLM 3": {"num_hidden_layers": 4, "no_rope_layer_interval": 4},  # every fourth layer, as in the trained model
    # llama.cpp scores groups as V3 does, and takes a latent vector of queries for granted.
    "DeepSeek V2": {"q_lora_rank": 256, "topk_method": "greedy", "n_group": 1, "topk_group": 1},
}
_MSCALE = {"mscale": 1.0, "mscale_all_dim": 1.0}
"""Equal, as in the trained model: files have one number for both."""


def settings_of(name: str) -> dict[str, Any]:
    """Return `config.json` of a case."""
    small = SMALL[name]
    found = {k: _WIDE.get(k, v) if v is not None else v for k, v in small.items()}
    if name == "GPT-2":
        found["n_inner"] = 256
    if name == "DeepSeek V3":
        found["rope_scaling"] = {**small["rope_scaling"], **_MSCALE}
    return {**found, **_OTHERS.get(name, {})}


def checkpoint_of(settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint; their values follow from their names."""
    kind = ARCHITECTURES[settings["model_type"]]
    state = Decoder(DecoderConfig.from_json(settings), "null").state_dict()
    shapes: dict[str, tuple[int, ...]] = {}
    for name, stored in checkpoint_names(settings).items():
        shape = tuple(state[name if name in state else "model.embed_tokens.weight"].shape)
        if len(stored.names) > 1:
            shape = shape[1:]
        for theirs in stored.names:
            rows = shapes[theirs][0] if theirs in shapes and stored.size is not None else 0
            shapes[theirs] = (rows + shape[0], *shape[1:])
    transposed = {t for t in shapes if any(part in t for part in kind.transposed)}
    return {t: weights(t, s[::-1] if t in transposed else s) for t, s in shapes.items()}


def write_folder(path: Path, settings: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Path:
    """Write a folder of Hugging Face's form without a tokenizer."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    ph.save({k: ph.tensor(x, device="numpy") for k, x in tensors.items()}, path / "model.safetensors")
    return path


def token_ids() -> list[int]:
    """Return the tokens whose logits are compared."""
    found: list[int] = np.random.default_rng(0).integers(3, 48, LENGTH).tolist()
    return found
