"""Folders with weights of 4 bits by AWQ and GPTQ: random words, against their formulas in float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")

import polyhal as ph
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError
from polyhal.llm import load, open_model
from polyhal.llm.blocks import dequantized

WIDTH, HIDDEN = 64, 96
CONFIG = {
    "model_type": "llama",
    "vocab_size": 48,
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
LAYERS = {
    **{f"self_attn.{k}_proj": (WIDTH, WIDTH) for k in "qkvo"},
    "mlp.gate_proj": (HIDDEN, WIDTH),
    "mlp.up_proj": (HIDDEN, WIDTH),
    "mlp.down_proj": (WIDTH, HIDDEN),
}
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def packed(codes: np.ndarray, order: tuple[int, ...] = tuple(range(8))) -> np.ndarray:
    """Pack codes (rows, 8 n) into words (rows, n); place i of a word has column `order[i]` of eight."""
    words = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
    for place, column in enumerate(order):
        words |= codes[:, column::8].astype(np.uint32) << np.uint32(4 * place)
    return words.view(np.int32)


def folder(path: Path, settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """Write a folder with random codes, zero points and scales; return the weights by the formula."""
    rng = np.random.default_rng(0)
    is_awq, group = settings["quant_method"] == "awq", settings["group_size"]
    tensors: dict[str, np.ndarray] = {
        name: rng.standard_normal(shape).astype(np.float16)
        for name, shape in {
            "model.embed_tokens.weight": (48, WIDTH),
            "lm_head.weight": (48, WIDTH),
            "model.norm.weight": (WIDTH,),
            "model.layers.0.input_layernorm.weight": (WIDTH,),
            "model.layers.0.post_attention_layernorm.weight": (WIDTH,),
        }.items()
    }
    expected = {}
    for layer, (rows, width) in LAYERS.items():
        name, groups = f"model.layers.0.{layer}", width // group
        codes = rng.integers(0, 16, (width, rows))
        zeros = (
            np.full((groups, rows), 8) if settings.get("sym") else rng.integers(0 if is_awq else 1, 16, (groups, rows))
        )
        scales = rng.uniform(0.01, 0.05, (groups, rows)).astype(np.float16)
        index = rng.permutation(width) // group if settings.get("desc_act") else np.arange(width) // group
        expected[f"{name}.weight"] = (scales.astype(np.float64)[index] * (codes - zeros[index])).T
        tensors[f"{name}.scales"] = scales
        if is_awq:
            tensors |= {f"{name}.qweight": packed(codes, AWQ_ORDER), f"{name}.qzeros": packed(zeros, AWQ_ORDER)}
        else:
            offset = 0 if settings.get("checkpoint_format") == "gptq_v2" else 1
            tensors |= {f"{name}.qweight": packed(codes.T).T, f"{name}.qzeros": packed(zeros - offset)}
            tensors[f"{name}.g_idx"] = index.astype(np.int32)
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": settings}))
    state = {k: ph.tensor(np.ascontiguousarray(x), device="numpy") for k, x in tensors.items()}
    ph.save(state, path / "model.safetensors")
    return expected


@pytest.mark.parametrize(
    ("settings", "form"),
    [
        ({"quant_method": "awq", "group_size": 32, "version": "gemm"}, "q5_0"),
        ({"quant_method": "gptq", "group_size": 32, "sym": True}, "q4_0"),
        ({"quant_method": "gptq", "group_size": 32, "sym": False, "checkpoint_format": "gptq_v2"}, "q5_0"),
        ({"quant_method": "gptq", "group_size": 32, "sym": False, "desc_act": True}, "f32"),
    ],
    ids=["awq", "gptq", "gptq, zero points", "gptq, reordered"],
)
def test_packed_weights_are_exact(tmp_path: Path, settings: dict[str, Any], form: str) -> None:
    expected = folder(tmp_path / "model", {"bits": 4, **settings})
    files = open_model(tmp_path / "model")
    for name, weight in expected.items():
        stored = files.weights[name]
        assert (stored.format, stored.shape) == (form, weight.shape)
        np.testing.assert_array_equal(dequantized(stored), weight.astype(np.float32))  # 15 bits: exact in float32
    model = load(tmp_path / "model", "numpy", ph.float32)
    layer = model.model.model.layers[0].mlp.down_proj
    assert type(layer) is (ph.nn.Linear if form == "f32" else ph.nn.QuantizedLinear)
    x = np.random.default_rng(1).standard_normal((2, HIDDEN))
    got = layer(ph.tensor(x.astype(np.float32), device="numpy")).numpy()
    np.testing.assert_allclose(got, x @ expected["model.layers.0.mlp.down_proj.weight"].T, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"quant_method": "fp8"}, "quant_method 'fp8'; expected awq or gptq"),
        ({"bits": 8}, "gptq with bits 8; expected 4"),
        ({"group_size": None}, "group_size None"),
        ({"checkpoint_format": "marlin"}, "checkpoint_format 'marlin'; expected gptq or gptq_v2"),
        ({"quant_method": "awq", "version": "gemv"}, "awq with version 'gemv'; expected gemm"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 32, **changes}
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": settings}))
    with pytest.raises(IncompatibleFileError, match=problem):
        open_model(tmp_path)


def test_tensors_that_contradict_the_settings_are_an_error(tmp_path: Path) -> None:
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}
    folder(tmp_path / "model", settings)
    config = tmp_path / "model" / "config.json"
    name = "model.layers.0.mlp.up_proj.weight"
    for changes, problem in (
        ({"sym": True}, "zero points other than 8"),
        ({"group_size": 64}, "2 groups; expected 96 and 1"),
    ):
        config.write_text(json.dumps({**CONFIG, "quantization_config": {**settings, **changes}}))
        with pytest.raises(CorruptFileError, match=problem):
            open_model(tmp_path / "model").weights[name].read()
