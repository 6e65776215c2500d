"""Every layer against PyTorch's: output and gradients, with its state dict loaded by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn
from polyhal.hal.errors import ShapeError

from .compare import array, check_layer, close

T = torch.nn


@pytest.mark.parametrize("bias", [True, False])
def test_linear(device: ph.Device, bias: bool) -> None:
    check_layer(nn.Linear(5, 3, bias, device=device), T.Linear(5, 3, bias), array(4, 2, 5), device=device)


@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_embedding(device: ph.Device, padding_idx: int | None) -> None:
    ours, theirs = nn.Embedding(6, 4, padding_idx, device=device), T.Embedding(6, 4, padding_idx)
    with torch.no_grad():
        theirs.weight.fill_(0.5)  # a padding row that is not zero must still come out as it is
    check_layer(ours, theirs, np.array([[0, 2, 5], [2, 2, 1]]), device=device)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize(
    ("name", "shape"), [("BatchNorm1d", (6, 4)), ("BatchNorm1d", (3, 4, 5)), ("BatchNorm2d", (3, 4, 5, 2))]
)
def test_batch_norm(
    device: ph.Device, name: str, shape: tuple[int, ...], training: bool, momentum: float | None
) -> None:
    ours, theirs = getattr(nn, name)(4, momentum=momentum, device=device), getattr(T, name)(4, momentum=momentum)
    for seed in range(2):  # running statistics that are not the starting ones
        theirs(torch.tensor(array(*shape, seed=seed + 5) + 0.5))
    check_layer(ours.train(training), theirs.train(training), array(*shape), device=device)


@pytest.mark.parametrize("settings", [{"affine": False}, {"track_running_stats": False}], ids=str)
def test_batch_norm_variants(device: ph.Device, settings: dict[str, Any]) -> None:
    ours, theirs = nn.BatchNorm2d(3, device=device, **settings), T.BatchNorm2d(3, **settings)
    check_layer(ours.eval(), theirs.eval(), array(2, 3, 4, 4), device=device)


def test_batch_norm_refuses_one_value_per_channel(device: ph.Device) -> None:
    with pytest.raises(ShapeError, match="1 values per channel"):
        nn.BatchNorm1d(3, device=device)(ph.zeros((1, 3), device=device))
    with pytest.raises(ShapeError, match=r"expected \(N, 3, H, W\)"):
        nn.BatchNorm2d(3, device=device)(ph.zeros((2, 4, 2, 2), device=device))


@pytest.mark.parametrize("settings", [{}, {"bias": False}, {"elementwise_affine": False}, {"eps": 0.1}], ids=str)
@pytest.mark.parametrize("shape", [6, (5, 6)])
def test_layer_norm(device: ph.Device, shape: Any, settings: dict[str, Any]) -> None:
    check_layer(
        nn.LayerNorm(shape, device=device, **settings), T.LayerNorm(shape, **settings), array(2, 5, 6), device=device
    )


@pytest.mark.parametrize("settings", [{}, {"eps": 0.1}, {"elementwise_affine": False}], ids=str)
def test_rms_norm(device: ph.Device, settings: dict[str, Any]) -> None:
    check_layer(nn.RMSNorm(6, device=device, **settings), T.RMSNorm(6, **settings), array(2, 5, 6), device=device)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(device: ph.Device, groups: int) -> None:
    check_layer(nn.GroupNorm(groups, 6, device=device), T.GroupNorm(groups, 6), array(2, 6, 4, 3), device=device)


ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("ReLU", {}), ("LeakyReLU", {}), ("LeakyReLU", {"negative_slope": 0.3}), ("ELU", {"alpha": 0.7}), ("GELU", {}),
    ("GELU", {"approximate": "tanh"}), ("SiLU", {}), ("Sigmoid", {}), ("Tanh", {}), ("Softplus", {}),
    ("Softplus", {"beta": 3.0, "threshold": 2.0}), ("Softmax", {"dim": 1}), ("LogSoftmax", {"dim": -1}),
    ("Flatten", {}),
    ("Flatten", {"start_dim": 0, "end_dim": 1}), ("Identity", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings"), ACTIVATIONS, ids=str)
def test_activation(device: ph.Device, name: str, settings: dict[str, Any]) -> None:
    check_layer(getattr(nn, name)(**settings), getattr(T, name)(**settings), array(3, 4, 5, scale=3), device=device)


def attend(layer: Any, xs: tuple[Any, ...]) -> Any:
    return layer(xs[0], xs[0], xs[0])[0]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_self_attention(device: ph.Device, batch_first: bool, bias: bool) -> None:
    ours = nn.MultiheadAttention(8, 2, bias=bias, batch_first=batch_first, device=device)
    check_layer(
        ours, T.MultiheadAttention(8, 2, bias=bias, batch_first=batch_first), array(3, 4, 8), device=device, call=attend
    )


@pytest.mark.parametrize("need_weights", [True, False])
def test_cross_attention(device: ph.Device, need_weights: bool) -> None:
    def call(layer: Any, xs: tuple[Any, ...]) -> Any:
        return layer(*xs, need_weights=need_weights)[0]

    ours, theirs = (
        nn.MultiheadAttention(8, 4, batch_first=True, device=device),
        T.MultiheadAttention(8, 4, batch_first=True),
    )
    check_layer(ours, theirs, array(2, 3, 8), array(2, 5, 8, seed=1), array(2, 5, 8, seed=2), device=device, call=call)


def test_attention_masks_and_weights(device: ph.Device) -> None:
    ours, theirs = (
        nn.MultiheadAttention(8, 2, batch_first=True, device=device),
        T.MultiheadAttention(8, 2, batch_first=True),
    )
    ours.load_state_dict(theirs.state_dict())
    x, causal = array(3, 4, 8), np.triu(np.ones((4, 4), bool), 1)
    padding = np.array([[False] * 4, [False, False, True, True], [False, False, False, True]])
    t = torch.tensor(x)
    for average in (True, False):
        expected = theirs(t, t, t, torch.tensor(padding), True, torch.tensor(causal), average)
        mine = ph.tensor(x, device=device)
        mask = ph.tensor(causal, device=device)
        found = ours(mine, mine, mine, ph.tensor(padding, device=device), True, mask, average)
        close(found[0], expected[0])
        close(found[1], expected[1])
    per_head = array(6, 4, 4, seed=3)
    expected = theirs(t, t, t, attn_mask=torch.tensor(per_head))
    close(ours(mine, mine, mine, attn_mask=ph.tensor(per_head, device=device))[0], expected[0])
    close(
        ours(mine, mine, mine, need_weights=False, is_causal=True)[0],
        theirs(t, t, t, attn_mask=torch.tensor(causal), is_causal=True, need_weights=False)[0],
    )
    close(ours(mine[0], mine[0], mine[0])[0], theirs(t[0], t[0], t[0])[0])


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(device: ph.Device, norm_first: bool, activation: str) -> None:
    settings: dict[str, Any] = {"dropout": 0.0, "activation": activation, "norm_first": norm_first, "batch_first": True}
    ours, theirs = (
        nn.TransformerEncoderLayer(8, 2, 16, device=device, **settings),
        T.TransformerEncoderLayer(8, 2, 16, **settings),
    )
    check_layer(ours, theirs, array(2, 5, 8), device=device)


def test_encoder(device: ph.Device) -> None:
    layer, other = nn.TransformerEncoderLayer(8, 2, 16, 0.0, device=device), T.TransformerEncoderLayer(8, 2, 16, 0.0)
    ours = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8, device=device))
    theirs = T.TransformerEncoder(other, 2, T.LayerNorm(8), enable_nested_tensor=False)
    check_layer(ours, theirs, array(5, 2, 8), device=device)
    assert ours.layers[0].linear1.weight is not ours.layers[1].linear1.weight


def test_positional_encoding(device: ph.Device) -> None:
    layer = nn.PositionalEncoding(5, 7, device=device)
    assert not layer.state_dict()
    found = layer(ph.zeros((1, 7, 5), device=device)).numpy()[0]
    rates = 10000.0 ** (-np.arange(0, 5, 2) / 5)
    expected = np.stack([np.sin(3 * rates), np.cos(3 * rates)], 1).reshape(-1)[:5]
    close(found[3], expected)
    with pytest.raises(ShapeError, match="8 positions"):
        layer(ph.zeros((1, 8, 5), device=device))


@pytest.mark.parametrize("name", ["ReLU", "GELU", "SiLU", "Sigmoid", "Tanh"])
def test_an_activation_joins_the_linear_layer_before_it(device: ph.Device, name: str) -> None:
    """Outputs and gradients are those of the layers one by one, with hooks in between and without."""
    ph.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5, device=device), getattr(nn, name)(), nn.Linear(5, 3, device=device))
    x = ph.Tensor(np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32), device=device)
    outcomes = []
    seen: list[np.ndarray] = []
    for apart in (False, True):
        handle = model[0].register_forward_hook(lambda m, args, out: seen.append(out.numpy())) if apart else None
        model.zero_grad()
        x.requires_grad_().grad = None
        out = model(x)
        (out * out).sum().backward()
        with ph.no_grad():
            quiet = model(x)
        outcomes.append([a.numpy() for a in (out, quiet, x.grad, *(p.grad for p in model.parameters()))])
        if handle is not None:
            handle.remove()
    for joined, alone in zip(*outcomes, strict=True):
        np.testing.assert_allclose(joined, alone, rtol=2e-6, atol=1e-6)
    assert [a.shape for a in seen] == [(4, 5)] * 2


def test_linear_refuses_other_activations(numpy_device: ph.Device) -> None:
    with pytest.raises(ValueError, match="activation 'swish'; expected one of relu, gelu"):
        nn.Linear(2, 3, device=numpy_device)(ph.ones((1, 2), device=numpy_device), "swish")
