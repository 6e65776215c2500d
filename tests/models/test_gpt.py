"""The GPT: its arithmetic against a plain PyTorch model, its cache against no cache, and its training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import optim
from polyhal.data import DataLoader, TokenWindows
from polyhal.hal.errors import ShapeError
from polyhal.models import GPT, GPTConfig, from_gpt2_state, generate, stream

CONFIG = GPTConfig(vocab_size=17, block_size=12, n_layer=2, n_head=2, n_embd=8)


def model(device: ph.Device, **changes: Any) -> GPT:
    ph.manual_seed(0)
    made = GPT(GPTConfig.from_json({**CONFIG.to_json(), **changes}), device=device)
    for p in made.parameters():  # values that make a difference
        ph.nn.init.normal_(p, 0.0, 0.3)
    return made


def torch_logits(state: dict[str, torch.Tensor], ids: np.ndarray) -> torch.Tensor:
    """Return GPT-2 written out with PyTorch's functions."""
    f = torch.nn.functional

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return f.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return f.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state.get(f"{name}.bias"), 1e-5)

    t = torch.tensor(ids)
    x = state["transformer.wte.weight"][t] + state["transformer.wpe.weight"][: t.shape[1]]
    for i in range(CONFIG.n_layer):
        h = f"transformer.h.{i}"
        q, k, v = (
            part.reshape(*t.shape, CONFIG.n_head, -1).transpose(1, 2)
            for part in linear(norm(x, f"{h}.ln_1"), f"{h}.attn.c_attn").split(CONFIG.n_embd, -1)
        )
        y = f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + linear(y, f"{h}.attn.c_proj")
        x = x + linear(f.gelu(linear(norm(x, f"{h}.ln_2"), f"{h}.mlp.c_fc"), approximate="tanh"), f"{h}.mlp.c_proj")
    return linear(norm(x, "transformer.ln_f"), "lm_head")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_against_pytorch(device: ph.Device, tied: bool, bias: bool) -> None:
    ours = model(device, tie_weights=tied, bias=bias)
    state = {k: torch.tensor(v.numpy(), requires_grad=True) for k, v in ours.state_dict().items()}
    if tied:
        state["lm_head.weight"] = state["transformer.wte.weight"]
    rng = np.random.default_rng(0)
    ids, targets = rng.integers(0, 17, (3, 7)), rng.integers(0, 17, (3, 7))
    found, expected = ours(ph.tensor(ids, device=device)), torch_logits(state, ids)
    np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), rtol=1e-4, atol=2e-5)
    loss = ours.loss(ph.tensor(ids, device=device), ph.tensor(targets, device=device))
    other = torch.nn.functional.cross_entropy(expected.flatten(0, 1), torch.tensor(targets).flatten())
    assert loss.item() == pytest.approx(other.item(), rel=1e-5)
    loss.backward()
    other.backward()
    for name, p in ours.named_parameters():
        grad = state[name].grad
        assert p.grad is not None
        assert grad is not None
        np.testing.assert_allclose(p.grad.numpy(), grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def test_keys_match_gpt2() -> None:
    keys = list(GPT(GPTConfig(5, 4, 1, 1, 4), device="numpy").state_dict())
    expected = [
        "wte.weight",
        "wpe.weight",
        "h.0.ln_1.weight",
        "h.0.ln_1.bias",
        "h.0.attn.c_attn.weight",
        "h.0.attn.c_attn.bias",
    ]
    expected += [
        "h.0.attn.c_proj.weight",
        "h.0.attn.c_proj.bias",
        "h.0.ln_2.weight",
        "h.0.ln_2.bias",
        "h.0.mlp.c_fc.weight",
    ]
    expected += ["h.0.mlp.c_fc.bias", "h.0.mlp.c_proj.weight", "h.0.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"]
    assert keys == [*(f"transformer.{k}" for k in expected), "lm_head.weight"]


def test_original_gpt2_weights() -> None:
    """They are stored (in, out), without the prefix, with fixed masks and without the tied layer."""
    ours = model(ph.Device("numpy"))
    original = {"h.0.attn.bias": np.ones((1, 1, 4, 4))}
    for name, value in ours.state_dict().items():
        turned = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
        if name != "lm_head.weight":
            original[name.removeprefix("transformer.")] = value.numpy().T if turned else value.numpy()
    fresh = GPT(CONFIG, device="numpy")
    fresh.load_state_dict(from_gpt2_state(original))
    ids = ph.tensor([[1, 2, 3]], device="numpy")
    np.testing.assert_array_equal(fresh(ids).numpy(), ours(ids).numpy())


def test_sizes() -> None:
    ours = GPT(GPTConfig(100, 16, 2, 2, 8), device="numpy")
    assert ours.lm_head.weight is ours.transformer["wte"].weight
    assert ours.count_parameters() == 100 * 8 + 16 * 8 + 2 * (12 * 64 + 13 * 8) + 16
    assert ours.flops_per_token() == 6 * (ours.count_parameters() - 128) + 12 * 2 * 8 * 16
    with pytest.raises(ValueError, match="not a multiple of n_head 3"):
        GPTConfig(n_embd=8, n_head=3)
    with pytest.raises(ValueError, match="n_layer is 0"):
        GPTConfig(n_layer=0)
    with pytest.raises(ShapeError, match="17 tokens of context"):
        ours(ph.zeros((1, 17), "int32", "numpy"))
    with pytest.raises(ShapeError, match=r"expected \(batch, length\)"):
        ours(ph.zeros((4,), "int32", "numpy"))


def test_cache_equals_no_cache(device: ph.Device) -> None:
    ours = model(device).eval()
    ids = np.random.default_rng(1).integers(0, 17, (2, 12)).astype(np.int32)
    with ph.no_grad():
        whole = ours(ph.tensor(ids, device=device)).numpy()
        for pieces in ([12], [1] * 12, [5, 1, 1, 3, 2], [1, 11]):
            cache = ours.make_cache(2)
            found, start = [], 0
            for count in pieces:
                found.append(ours(ph.tensor(ids[:, start : start + count], device=device), cache).numpy())
                start += count
            assert cache.length == 12
            np.testing.assert_allclose(np.concatenate(found, 1), whole, rtol=1e-4, atol=2e-5)
            with pytest.raises(ShapeError, match="13 tokens of context"):
                ours(ph.tensor(ids[:, :1], device=device), cache)


def test_generation_with_and_without_cache(device: ph.Device) -> None:
    """Beyond the block size, too, where the older half of the context is dropped."""
    ours = model(device)
    for options in ({"temperature": 0.0}, {"seed": 3}, {"seed": 4, "top_k": 5, "top_p": 0.8, "temperature": 0.7}):
        cached = generate(ours, [1, 2, 3], 30, **options)
        assert cached == generate(ours, [1, 2, 3], 30, use_cache=False, **options)
        assert len(cached) == 30
    assert generate(ours, list(range(15)), 3, temperature=0) == generate(ours, list(range(15))[-12:], 3, temperature=0)
    assert ours.training


def test_streaming_and_stopping(device: ph.Device) -> None:
    ours = model(device)
    seen: list[int] = []
    out = generate(ours, [1], 10, seed=1, on_token=seen.append)
    assert seen == out == ours.generate([1], 10, seed=1)
    iterator = stream(ours, [1], 10, seed=1)
    assert [next(iterator), next(iterator)] == out[:2]
    first = out.index(out[4])
    assert generate(ours, [1], 10, seed=1, stop_ids=[out[4]]) == out[:first]
    with pytest.raises(ValueError, match="prompt is empty"):
        stream(ours, [], 5)


def test_learns_a_pattern(device: ph.Device) -> None:
    ph.manual_seed(0)
    tokens = np.tile(np.array([3, 1, 4, 1, 5, 9, 2, 6]), 40)
    loader = DataLoader(TokenWindows(tokens, 10, stride=5), 16, shuffle=True, device=device)
    ours = GPT(GPTConfig(10, 16, 1, 2, 16, dropout=0.05), device=device)
    optimizer = optim.AdamW(ours.parameters(), lr=1e-2)
    for _ in range(12):
        for ids, targets in loader:
            loss = ours.loss(ids, targets)
            optimizer.zero_grad()
            loss.backward()
            ph.nn.utils.clip_grad_norm_(ours.parameters(), 1.0)
            optimizer.step()
    assert loss.item() < 0.5
    assert generate(ours, [3, 1, 4], 8, temperature=0) == [1, 5, 9, 2, 6, 3, 1, 4]
