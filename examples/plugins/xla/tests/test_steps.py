"""Captured training steps on XLA: one program each, with the results of NumPy's device, in memory that is donated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from polyhal_xla.memory import Memory

import polyhal
from polyhal import nn, optim
from polyhal.models import CNN, GPT, MLP, BasicBlock, Decoder, DecoderConfig, GPTConfig, ResNet, UNet
from polyhal.nn import functional as F

STEPS = 4


def _mlp() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return MLP((6, 16, 3)), rng.standard_normal((8, 6)).astype(np.float32), np.arange(8) % 3


def _cnn() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return CNN(size=4, channels=4), rng.standard_normal((4, 1, 4, 4)).astype(np.float32), np.arange(4) % 10


def _gpt() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    model = GPT(GPTConfig(vocab_size=13, block_size=8, n_layer=1, n_head=2, n_embd=16))
    x, y = (rng.integers(0, 13, (2, 8)) for _ in range(2))
    return model, x, y


def _resnet() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    """Two of ResNet-18's four stages, so that batch norm averages over more than two numbers at the end."""
    rng = np.random.default_rng(0)
    model = ResNet(BasicBlock, (2, 2), 10, width=8, small_images=True)
    return model, rng.standard_normal((4, 3, 8, 8)).astype(np.float32), np.arange(4) % 10


class _Denoiser(nn.Module):
    """A UNet at one level of noise, whose pixels are the logits of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.unet = UNet(1, None, (8, 16), (False, True), 1, 4)

    def forward(self, x: Any) -> Any:
        level = polyhal.full((len(x),), 7, dtype=polyhal.int32, device=x.device)
        return self.unet(x, level).flatten(1)


def _unet() -> tuple[nn.Module, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return _Denoiser(), rng.standard_normal((2, 1, 8, 8)).astype(np.float32), np.arange(2)


MODELS = {"mlp": _mlp, "cnn": _cnn, "gpt": _gpt, "resnet": _resnet, "unet": _unet}


def _train(name: str, device: str) -> tuple[list[float], nn.Module, Any]:
    polyhal.manual_seed(1)
    model, inputs, targets = MODELS[name]()
    model = model.to(device)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    x, y = polyhal.tensor(inputs, device=device), polyhal.tensor(targets, device=device)

    @polyhal.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits.reshape((-1, logits.shape[-1])), y.reshape((-1,)))
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for k in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.01 / (k + 1)
        losses.append(step(x, y).item())
    return losses, model, step


@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_is_one_program(name: str) -> None:
    """Losses are compared, not parameters: Adam divides gradients near zero by their own size."""
    losses, _, step = _train(name, "xla")
    expected, _, _ = _train(name, "numpy")
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    text = step.explain()
    assert text.count("= program(") == 1, text
    assert "; 1 run on xla" in text, text


def test_a_llama_decodes_with_its_cache_in_one_program() -> None:
    """The position is an input, so that one program serves all tokens. Logits are sums of some ten terms near one."""
    config = DecoderConfig(
        vocab_size=17,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8,
    )
    logits = {}
    for device in ("numpy", "xla"):
        polyhal.manual_seed(1)
        model = Decoder(config, device=device).eval()
        cache = model.make_cache(1)

        @polyhal.jit
        def decode(token: Any, position: Any, model: Any = model, cache: Any = cache) -> Any:
            cache.lengths.copy_(position)
            return model(token, cache)[0, -1]

        with polyhal.no_grad():
            logits[device] = [
                decode(
                    polyhal.tensor(np.array([[token]], np.int32), device=device),
                    polyhal.tensor(np.array([position], np.int32), device=device),
                ).numpy()
                for position, token in enumerate((3, 1, 4, 1, 5))
            ]
    np.testing.assert_allclose(logits["xla"], logits["numpy"], rtol=1e-5, atol=1e-5)
    text = decode.explain()
    assert text.count("= program(") == 1, text
    assert "; 1 run on xla" in text, text


def test_results_replace_memory_without_a_copy() -> None:
    _, model, step = _train("mlp", "xla")
    (first, *_) = model.parameters()
    memory = first.buffer.handle
    assert isinstance(memory, Memory)
    old = memory.value
    assert memory.is_stale, "the last step's result is the array of its program"
    x, y = (polyhal.tensor(a, device="xla") for a in MODELS["mlp"]()[1:])
    step(x, y)
    assert old.is_deleted(), "the parameter was donated"
    assert first.buffer.handle is memory


def test_a_copy_outlives_the_donated_original() -> None:
    w = polyhal.ones((3,), device="xla")
    copy = polyhal.jit(lambda w: (polyhal.copy(w), polyhal.copy(w)), warm_up=False)
    copies = [x for _ in range(2) for x in copy(w)]

    @polyhal.jit
    def update() -> None:
        w.sub_(1)

    for _ in range(3):
        update()
    assert w.tolist() == [-2] * 3
    assert [x.tolist() for x in copies] == [[1] * 3] * 4


def test_host_writes_between_programs_are_seen() -> None:
    x = polyhal.ones((3, 4), device="xla")
    step = polyhal.jit(lambda x: polyhal.exp(x) + 1, warm_up=False)
    for number in (0.0, 2.0, -1.0):
        x[1] = number
        expected = np.exp(np.array([[1.0] * 4, [number] * 4, [1.0] * 4], np.float32)) + 1
        np.testing.assert_allclose(step(x).numpy(), expected, rtol=1e-6)


def test_integers_of_64_bits_keep_their_digits() -> None:
    x = polyhal.tensor(np.array([1 << 40, -(1 << 50)]), device="xla")
    step = polyhal.jit(lambda x: x * 3 + 1, warm_up=False)
    assert step(x).tolist() == [(1 << 40) * 3 + 1, -(1 << 50) * 3 + 1]


def test_a_program_that_fails_reports_the_step() -> None:
    """XLA's errors pass through with the step and the device."""
    x = polyhal.ones((3,), device="xla")
    step = polyhal.jit(lambda x: polyhal.exp(x) + 1, warm_up=False)
    step(x)
    x.buffer.handle.array(x.ref).delete()
    with pytest.raises(RuntimeError, match="deleted") as caught:
        step(x)
    assert any("program" in note and "xla" in note for note in caught.value.__notes__)
