"""Decoders: the same numbers as transformers and PyTorch, training, the cache, and a trained model that writes its text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, ShapeError
from polyhal.models import Decoder, DecoderConfig, checkpoint_names, from_checkpoint, generate, load_llama2c
from tests.models.architectures.cases import CASES
from tests.models.architectures.comparison import LIMIT, MODES, decoder, difference, load

torch = pytest.importorskip("torch", reason="PyTorch is a development dependency")

BOUND = 1e-4
SMALL = DecoderConfig(
    vocab_size=40,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=20,
)
STORIES = Path(__file__).parent / "stories260K"


EXPECTED = load()


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_the_logits_of_transformers(name: str) -> None:
    """At once and in pieces with a cache, with padding on the left; and both forms of `config.json` are the same decoder."""
    expected = EXPECTED[name]
    assert max(difference(name, expected, mode, "numpy") for mode in MODES) < LIMIT
    assert DecoderConfig.from_json(expected.config) == DecoderConfig.from_json(CASES[name])


@pytest.mark.parametrize("name", ["Gemma 2", "DeepSeek V3"])
def test_parts_compute_the_same_on_devices(device: ph.Device, name: str) -> None:
    assert max(difference(name, EXPECTED[name], mode, device) for mode in MODES) < LIMIT


@pytest.mark.parametrize("name", ["Mixtral", "Phi 3, longrope, short"])
def test_transformers_computes_the_expected_logits(name: str) -> None:
    """The installed transformers computes the committed numbers."""
    pytest.importorskip("transformers", minversion="5.0", reason="a peer that the libraries' tests install")
    from tests.models.architectures.__main__ import compute

    found, _ = compute(CASES[name])
    np.testing.assert_allclose(found.logits, EXPECTED[name].logits, atol=1e-5)


@pytest.mark.parametrize("name", ["Gemma 3", "Qwen 2 with experts", "DeepSeek V3"])
def test_training_steps_have_the_gradients_of_finite_differences(name: str) -> None:
    """Eager and captured, along one direction of all parameters, in float64."""
    model = decoder(name, EXPECTED[name], "numpy").double()
    rng = np.random.default_rng(0)
    ids, targets = (ph.tensor(rng.integers(0, 48, (2, 12)), device="numpy") for _ in range(2))
    directions = {n: rng.standard_normal(p.shape) for n, p in model.named_parameters()}

    def step(ids: ph.Tensor, targets: ph.Tensor) -> ph.Tensor:
        model.zero_grad()
        loss: ph.Tensor = model.loss(ids, targets)
        loss.backward()
        return loss

    def along() -> float:
        grads = {n: p.grad for n, p in model.named_parameters()}
        return float(sum((g.numpy() * directions[n]).sum() for n, g in grads.items() if g is not None))

    def moved(by: float) -> float:
        for n, p in model.named_parameters():
            p.detach().add_(ph.tensor(by * directions[n], device="numpy"))
        return model.loss(ids, targets).item()

    step(ids, targets)
    eager = along()
    captured = ph.jit(step)
    for _ in range(3):
        captured(ids, targets)
        assert along() == pytest.approx(eager, rel=1e-9)
    h = 1e-6
    above, below = moved(h), moved(-2 * h)
    # The cosines of rotations are float32; both sides read the same ones. h**2 times third derivatives, and roundings / h.
    assert eager == pytest.approx((above - below) / (2 * h), rel=1e-5)


def test_parameters_are_named_without_a_model() -> None:
    for name, settings in CASES.items():
        model = decoder(name, EXPECTED[name], "numpy")
        assert set(checkpoint_names(settings)) == set(model.state_dict()), name
    with pytest.raises(ValueError, match=r"the state has no model\.embed_tokens\.weight"):
        from_checkpoint(CASES["Llama"], {})


@pytest.mark.parametrize("tied", [False, True])
def test_outputs_and_gradients_agree_with_pytorch(device: ph.Device, tied: bool) -> None:
    from tests.models.parity.comparison import compare
    from tests.models.parity.torch_llama import TorchLlama

    torch.manual_seed(0)
    config = DecoderConfig(**{name: getattr(SMALL, name) for name in SMALL.__slots__} | {"tie_word_embeddings": tied})
    ids = np.random.default_rng(0).integers(0, 40, (2, 9))
    found = compare(Decoder(config, device), TorchLlama(config), [ids], device)
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
    model = Decoder(SMALL, device).eval()
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
    model = Decoder(SMALL, "numpy")
    layer = """
        self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj
        input_layernorm post_attention_layernorm
    """
    names = [f"model.layers.{i}.{name}.weight" for i in range(2) for name in layer.split()]
    assert set(model.state_dict()) == {*names, "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}


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
