"""Adapters of PEFT's layers that compute several of the decoder's: products are equal in both forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import polyhal as ph
from polyhal.adapters import adapters, load_adapter, read_adapter, save_adapter
from polyhal.hal.errors import IncompatibleFileError
from polyhal.models import Decoder, DecoderConfig, checkpoint_names

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4}
TOKENS = {"vocab_size": 20, "max_position_embeddings": 16}
CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "phi3": ({**SIZES, **TOKENS, "num_key_value_heads": 2}, "model.layers.0.self_attn.qkv_proj"),
    "gpt2": (
        {"n_embd": 16, "n_layer": 1, "n_head": 4, "n_positions": 16, "vocab_size": 20},
        "transformer.h.0.attn.c_attn",
    ),
    "gpt_neox": ({**SIZES, **TOKENS, "rotary_pct": 0.5}, "gpt_neox.layers.0.attention.query_key_value"),
}


def _write(folder: Path, layer: str, rows: int, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    """Write a random adapter of a layer as PEFT does, and return its weights."""
    rng = np.random.default_rng(1)
    first, second = (rng.normal(0, 1, shape).astype(np.float32) for shape in ((3, 16), (rows, 3)))
    names = (f"base_model.model.{layer}.lora_{m}.weight" for m in "AB")
    save_file(dict(zip(names, (first, second), strict=True)), folder / "adapter_model.safetensors")
    data = {"peft_type": "LORA", "r": 3, "lora_alpha": 6, "target_modules": [layer.split(".")[-1]], **settings}
    (folder / "adapter_config.json").write_text(json.dumps(data))
    return first, second


@pytest.mark.parametrize("kind", CONFIGS)
def test_an_adapter_of_a_fused_layer_is_read_and_written_again(tmp_path: Path, kind: str) -> None:
    sizes, layer = CONFIGS[kind]
    data = {"model_type": kind, **sizes}
    stored = checkpoint_names(data)
    parts = {p: stored[f"model.layers.0.self_attn.{p}_proj.weight"] for p in "qkv"}
    first, second = _write(tmp_path, layer, 32 if kind == "phi3" else 48, fan_in_fan_out=kind == "gpt2")
    model = Decoder(DecoderConfig.from_json(data), device="numpy")
    settings = load_adapter(model, tmp_path, stored)
    for path, adapted in adapters(model):  # the part of a fused weight is the part of the product
        rows = parts[path.split(".")[-1][0]].rows(len(second))
        np.testing.assert_array_equal(adapted.product().numpy(), (second @ first)[rows] * np.float32(2))
    save_adapter(model, tmp_path / "same", settings, stored)
    saved = load_file(tmp_path / "same" / "adapter_model.safetensors")
    np.testing.assert_array_equal(saved[f"base_model.model.{layer}.lora_B.weight"], second)
    query = dict(adapters(model))["model.layers.0.self_attn.q_proj"]
    with ph.no_grad():
        query.lora_A.weight.mul_(-1)  # trained separately from the others
    save_adapter(model, tmp_path / "other", settings, stored)
    product = read_adapter(tmp_path / "other").product(layer)
    expected = (second @ first) * np.float32(2)
    expected[parts["q"].rows(len(second))] *= -1
    # A sum of 9 products with 6 zeros, in another order than a sum of 3.
    np.testing.assert_allclose(product, expected, atol=9 * 2**-24 * np.abs(expected).max())
    assert json.loads((tmp_path / "other" / "adapter_config.json").read_text())["fan_in_fan_out"] is (kind == "gpt2")
    _write(tmp_path, "model.layers.0.block_sparse_moe.experts.0.w1", 24)
    with pytest.raises(IncompatibleFileError, match=r"experts\.0\.w1 and 0 more layers have adapters"):
        read_adapter(tmp_path, stored)
