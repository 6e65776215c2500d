"""Softmax, cross entropy and attention of large scores: the logarithm of the sum is not lost to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from devices import PARITY_DEVICES
from torch.nn.attention import SDPBackend, sdpa_kernel

import polyhal
from polyhal import Tensor
from polyhal.hal.device import Device
from polyhal.nn import functional as F

_SHIFTS = [1e6, 1e9, 3e38, -1e9]


@pytest.fixture(params=PARITY_DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    return Device(request.param)


def _leaf(values: object, device: Device) -> Tensor:
    return Tensor(np.asarray(values, np.float32), device=device, requires_grad=True)


@pytest.mark.parametrize("rows", [3, 700])  # few rows have their own kernel
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shift", _SHIFTS)
def test_the_cross_entropy_of_equal_logits_is_the_logarithm_of_their_number(
    device: Device, shift: float, smoothing: float, rows: int
) -> None:
    x = _leaf(np.full((rows, 5), shift), device)
    target = polyhal.tensor(np.arange(rows) % 5, device=device)
    loss = F.cross_entropy(x, target, label_smoothing=smoothing)
    loss.backward()
    assert loss.item() == pytest.approx(np.log(5), rel=1e-6)
    expected = 0.2 - np.eye(5)[np.arange(rows) % 5] * (1 - smoothing) - smoothing / 5
    np.testing.assert_allclose(x.grad.numpy() * rows, expected, atol=1e-6)


@pytest.mark.parametrize("shift", _SHIFTS)
def test_the_gradient_of_logsumexp_is_the_softmax(device: Device, shift: float) -> None:
    x = _leaf(np.full((2, 5), shift), device)
    polyhal.logsumexp(x, 1).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 0.2, rtol=1e-6)


def _attention(
    device: Device, captured: bool, queries: int, mask: np.ndarray, learned: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the result and the gradients of q, k, v (and the mask), and PyTorch's in float64."""
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=(1, 2, n, 16)).astype(np.float32) for n in (queries, 5, 5)]
    arrays[0] *= 0  # a large mask absorbs the products in float32 but not in float64
    g = rng.normal(size=(1, 2, queries, 16)).astype(np.float32)
    leaves = [_leaf(a, device) for a in arrays]
    added = Tensor(mask, device=device, requires_grad=learned)

    def step() -> tuple[Tensor, ...]:
        out = F.scaled_dot_product_attention(*leaves, attn_mask=added)
        return out, *polyhal.grad(out, [*leaves, *([added] if learned else [])], [Tensor(g, device=device)])

    function = polyhal.jit(step) if captured else step
    for _ in range(3 if captured else 1):
        got = [y.numpy() for y in function()]
    theirs = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
    bias = torch.tensor(mask, dtype=torch.float64, requires_grad=learned)
    with sdpa_kernel(SDPBackend.MATH):  # its fused kernel returns the sum of the values for finfo.min
        out = torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=bias)
    out.backward(torch.tensor(g, dtype=torch.float64))
    return got, [out.detach().numpy(), *(x.grad.numpy() for x in [*theirs, *([bias] if learned else [])])]


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("queries", [1, 6])
@pytest.mark.parametrize("value", [-1e9, -1e5, 1e9, float(np.finfo(np.float32).min)])
def test_attention_to_keys_with_one_large_bias_is_their_mean(
    device: Device, value: float, queries: int, captured: bool
) -> None:
    mask = np.zeros((queries, 5), np.float32)
    mask[::2] = value
    mask[1::2, :2] = value
    for got, expected in zip(*_attention(device, captured, queries, mask), strict=True):
        np.testing.assert_allclose(got, expected, atol=3e-6)


def test_a_learned_mask_with_large_numbers_has_its_gradient(device: Device) -> None:
    mask = np.full((6, 5), -1e9, np.float32)
    mask[1::2, :2] = 0
    for got, expected in zip(*_attention(device, False, 6, mask, learned=True), strict=True):
        np.testing.assert_allclose(got, expected, atol=3e-6)
