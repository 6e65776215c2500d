"""The Llama-style decoder: the same numbers as PyTorch, its cache, and a trained model that writes the expected
text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, ShapeError
from polyhal.models import Llama, LlamaConfig, from_llama_state, generate, load_llama2c

torch = pytest.importorskip("torch", reason="PyTorch is a development dependency")

BOUND = 1e-4
SMALL = LlamaConfig(
    vocab_size=40,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=20,
)
STORIES = Path(__file__).parent / "stories260K"


@pytest.mark.parametrize("tied", [False, True])
def test_outputs_and_gradients_agree_with_pytorch(device: ph.Device, tied: bool) -> None:
    from tests.models.parity.comparison import compare
    from tests.models.parity.torch_llama import TorchLlama

    torch.manual_seed(0)
    config = LlamaConfig(**{name: getattr(SMALL, name) for name in SMALL.__slots__} | {"tie_word_embeddings": tied})
    ids = np.random.default_rng(0).integers(0, 40, (2, 9))
    found = compare(Llama(config, device), TorchLlama(config), [ids], device)
    assert max(found.outputs, found.gradients) < BOUND, found


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_trained_model_writes_its_story(device: ph.Device, use_cache: bool) -> None:
    """All stored tokens with the cache; 40 without, where each costs the whole context, and on variants of a device."""
    expected = json.loads((STORIES / "greedy_ids.json").read_text())
    expected = expected if use_cache and ":" not in device.name.removeprefix("opencl:") else expected[:41]
    model = load_llama2c(STORIES / "model.bin", device)
    assert model.count_parameters() == 260_032
    assert generate(model, expected[:1], len(expected) - 1, temperature=0, use_cache=use_cache) == expected[1:]


def test_logits_with_and_without_a_cache_are_equal(device: ph.Device) -> None:
    """In pieces of any length, although heads share keys and values."""
    ph.manual_seed(0)
    model = Llama(SMALL, device).eval()
    ids = np.random.default_rng(1).integers(0, 40, (2, 12))
    with ph.no_grad():
        whole = model(ph.tensor(ids, device=device)).numpy()
        for pieces in ([12], [1] * 12, [5, 1, 1, 3, 2]):
            cache, start, logits = model.make_cache(2), 0, []
            for count in pieces:
                logits.append(model(ph.tensor(ids[:, start : start + count], device=device), cache).numpy())
                start += count
            np.testing.assert_allclose(np.concatenate(logits, 1), whole, rtol=1e-4, atol=2e-6)
        with pytest.raises(ShapeError, match="21 tokens of context"):
            model(ph.tensor(ids[:, :9], device=device), cache)


def test_names_match_hugging_face() -> None:
    model = Llama(SMALL, "numpy")
    layer = """
        self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj
        input_layernorm post_attention_layernorm
    """
    names = [f"model.layers.{i}.{name}.weight" for i in range(2) for name in layer.split()]
    assert set(model.state_dict()) == {*names, "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
    stored = {"model.embed_tokens.weight": 1, "model.layers.0.self_attn.rotary_emb.inv_freq": 2}
    assert from_llama_state(stored) == {"model.embed_tokens.weight": 1, "lm_head.weight": 1}


def test_settings_of_hugging_face() -> None:
    config = LlamaConfig.from_json({"hidden_size": 64, "num_attention_heads": 8, "torch_dtype": "float16"})
    assert config == LlamaConfig(hidden_size=64, num_attention_heads=8)
    for data in ({"rope_scaling": {"factor": 8.0}}, {"hidden_act": "gelu"}, {"mlp_bias": True}):
        with pytest.raises(ValueError, match="expected"):
            LlamaConfig.from_json(data)
    with pytest.raises(ValueError, match="num_key_value_heads 3"):
        LlamaConfig(num_key_value_heads=3)


def test_files_that_are_not_such_models_are_refused(tmp_path: Path) -> None:
    data = (STORIES / "model.bin").read_bytes()
    path = tmp_path / "model.bin"
    path.write_bytes(data[:-4])
    with pytest.raises(CorruptFileError, match=r"expected \d+ for the sizes in its header"):
        load_llama2c(path, "numpy")
    path.write_bytes(b"24ka" + data[4:])
    with pytest.raises(IncompatibleFileError, match="version 0"):
        load_llama2c(path, "numpy")
    path.write_bytes(np.array([64, 172, 5, 7, 4, 512, 512], "<i4").tobytes() + data[28:])
    with pytest.raises(CorruptFileError, match="sizes"):
        load_llama2c(path, "numpy")
