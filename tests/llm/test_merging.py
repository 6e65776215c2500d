"""Adapters merged into the weights of folders and GGUF files: the logits of the model with its adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import polyhal as ph
from polyhal.adapters import LoraSettings, adapters, add_lora, save_adapter
from polyhal.hal.errors import IncompatibleFileError, SettingError
from polyhal.llm import LanguageModel, load, merge_adapter, quantize
from polyhal.models import Decoder, DecoderConfig, checkpoint_names

IDS = np.random.default_rng(3).integers(0, 90, (2, 9)).astype(np.int32)
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS = {"vocab_size": 90, "max_position_embeddings": 32, "tie_word_embeddings": False}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SIZES, **TOKENS, "num_key_value_heads": 2},
    "phi3": {"model_type": "phi3", **SIZES, **TOKENS, "num_key_value_heads": 2, "pad_token_id": 0},
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 90},
}


def folder(path: Path, config: dict[str, Any], kind: Any = np.float32) -> Path:
    """Write a random model in the tensors of its architecture, among them one that the decoder does not use."""
    decoder = Decoder(DecoderConfig.from_json(config), device="numpy")
    rng = np.random.default_rng(0)
    state = {"vision.weight": np.ones((2, 3), kind)}
    parts: dict[str, list[Any]] = {}
    for name, stored in checkpoint_names(config).items():
        parts.setdefault(stored.names[0], []).append((stored, decoder.state_dict()[name].shape))
    for theirs, members in parts.items():
        tied = len(members) > 1 and members[0][0].size is None
        rows = members[0][1][0] if tied else sum(shape[0] for _, shape in members)
        shape = (rows, *members[0][1][1:])
        values = rng.normal(0, 0.2, shape[::-1] if members[0][0].transposed else shape)
        state[theirs] = np.ascontiguousarray(values.astype(kind))
    path.mkdir()
    save_file(state, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps({**config, "dtype": str(np.dtype(kind))}))
    (path / "chat_template.jinja").write_text("{{ messages }}")
    return path


def adapter(model: LanguageModel, path: Path) -> Path:
    """Write random adapters of the inner layers."""
    settings = LoraSettings(r=3, lora_alpha=6)
    add_lora(model.model, settings)
    rng = np.random.default_rng(1)
    with ph.no_grad():
        for _, layer in adapters(model.model):
            for weight in (layer.lora_A.weight, layer.lora_B.weight):
                weight.copy_(ph.tensor(rng.normal(0, 0.2, weight.shape), dtype="float32", device="numpy"))
    return save_adapter(model.model, path, settings)


def logits(model: LanguageModel) -> np.ndarray:
    with ph.no_grad():
        return model.model(ph.tensor(IDS, device="numpy")).to("float32").numpy()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_merged_folder_has_the_logits_of_the_adapter(tmp_path: Path, name: str) -> None:
    source = folder(tmp_path / "base", CONFIGS[name])
    made = adapter(load(source, "numpy"), tmp_path / "adapter")
    target = merge_adapter(source, made, tmp_path / "merged", shard_bytes=20_000)
    expected = logits(load(source, "numpy", adapter=made))
    assert np.abs(expected - logits(load(source, "numpy"))).max() > 0.1
    # Float32 throughout: sums of up to 48 products in another order, through about ten layers of them.
    np.testing.assert_allclose(logits(load(target, "numpy")), expected, atol=48 * 10 * 2**-24 * np.abs(expected).max())
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    whole = {k: v for file in target.glob("*.safetensors") for k, v in load_file(file).items()}
    original = load_file(source / "model.safetensors")
    assert {k: v.shape for k, v in whole.items()} == {k: v.shape for k, v in original.items()}
    assert index["metadata"]["total_size"] == sum(v.nbytes for v in whole.values())
    assert (target / "chat_template.jinja").read_text() == "{{ messages }}"
    with pytest.raises(SettingError, match="a new or an empty folder"):
        merge_adapter(source, made, target)
    wide = folder(tmp_path / "wide", {**CONFIGS["llama"], "intermediate_size": 64})
    with pytest.raises(IncompatibleFileError, match="has an adapter of shape"):
        merge_adapter(wide, made, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_half_precision_is_kept_and_each_weight_is_rounded_once(tmp_path: Path) -> None:
    source = folder(tmp_path / "base", CONFIGS["llama"], np.float16)
    made = adapter(load(source, "numpy"), tmp_path / "adapter")
    before, after = (
        load_file(p / "model.safetensors") for p in (source, merge_adapter(source, made, tmp_path / "merged"))
    )
    low, high = (
        load_file(made / "adapter_model.safetensors")[
            f"base_model.model.model.layers.1.mlp.down_proj.lora_{n}.weight"
        ].astype(np.float64)
        for n in "AB"
    )
    name = "model.layers.1.mlp.down_proj.weight"
    exact = before[name].astype(np.float64) + 2 * high @ low
    assert {v.dtype for v in after.values()} == {np.dtype(np.float16)}
    # Half a unit of the last of 11 bits, and the error of products in float32.
    np.testing.assert_allclose(after[name].astype(np.float64), exact, rtol=2**-11, atol=1e-6)
    assert json.loads((tmp_path / "merged" / "config.json").read_text())["dtype"] == "float16"


def test_a_quantised_file_becomes_a_folder_of_floats(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
    from tests.llm.small_models import stories, with_bytes

    stories(tmp_path / "s.gguf")
    quantize(tmp_path / "s.gguf", tmp_path / "q.gguf", "q8_0")
    made = adapter(load(tmp_path / "q.gguf", "numpy"), tmp_path / "adapter")
    expected = logits(load(tmp_path / "q.gguf", "numpy", adapter=made))
    exact = merge_adapter(tmp_path / "q.gguf", made, tmp_path / "exact", "float32")
    # The kernel of blocks may round activations to 8 bits: 1/254 of the largest of a block, in each of 35 products.
    np.testing.assert_allclose(logits(load(exact, "numpy")), expected, atol=np.abs(expected).max() * 35**0.5 / 254)
    half = merge_adapter(tmp_path / "q.gguf", made, tmp_path / "half")
    assert {str(v.dtype) for v in load_file(half / "model.safetensors").values()} == {"float16", "float32"}
    # The tokenizer and the template of a file with a vocabulary.
    with_bytes(tmp_path / "b.gguf")
    source = load(tmp_path / "b.gguf", "numpy")
    talk = [{"role": "user", "content": "ab</s>é"}]
    expected_ids = source.chat_ids(talk)
    merged = load(merge_adapter(tmp_path / "b.gguf", adapter(source, tmp_path / "b"), tmp_path / "bytes"), "numpy")
    assert merged.chat_ids(talk) == expected_ids
    assert merged.stop_ids == source.stop_ids


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_reads_a_merged_folder(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    torch = pytest.importorskip("torch")
    source = folder(tmp_path / "base", CONFIGS[name])
    made = adapter(load(source, "numpy"), tmp_path / "adapter")
    target = merge_adapter(source, made, tmp_path / "merged", shard_bytes=20_000)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(target).eval()
    with torch.no_grad():
        found = theirs(torch.tensor(IDS.astype(np.int64))).logits.numpy()
    np.testing.assert_allclose(found, logits(load(source, "numpy", adapter=made)), atol=1e-4)
