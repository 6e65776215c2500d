"""Operands that no gradient rule needs are not saved: they are freed early and may be written in place, as in PyTorch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import Device, Tensor
from polyhal.hal.errors import AutogradError
from polyhal.nn import functional as F

Layer = Callable[[Any, Any, Any], Any]
"""Takes a library, `h` of shape (2, 4, 6, 6), which requires a gradient, and a frozen `w` of shape (4, 4, 3, 3)."""

LAYERS: dict[str, Layer] = {
    "a product with a number": lambda lib, h, w: h * 0.1,
    "a quotient": lambda lib, h, w: h / 3.0,
    "a remainder": lambda lib, h, w: h % 3.0,
    "fmod": lambda lib, h, w: lib.fmod(h, 3.0),
    "a product with a constant": lambda lib, h, w: h * w[0, 0, 0, 0],
    "a quotient by a constant": lambda lib, h, w: h / (w[:, 0, 0, :1] + 2)[:, :, None],
    "a difference": lambda lib, h, w: 1 - h,
    "addcmul": lambda lib, h, w: lib.addcmul(h, w[:1, :, :1, :1], w[:1, :, :1, 1:2]),
    "lerp": lambda lib, h, w: lib.lerp(h, w[:1, :, :1, :1], 0.3),
    "a choice": lambda lib, h, w: lib.where(w[:1, :, :1, :1] > 0, h, 2.0),
    "a matrix product": lambda lib, h, w: h.reshape(2, 4, 36) @ w.reshape(36, 4),
    "a matrix product from the left": lambda lib, h, w: w.reshape(9, 16)[:, :4] @ h.reshape(2, 4, 36),
    "a linear layer": lambda lib, h, w: lib.nn.functional.linear(h, w.reshape(24, 6)),
    "a convolution": lambda lib, h, w: lib.nn.functional.conv2d(h, w, w[0, 0, 0, :1].expand(4), padding=1),
    "a transposed convolution": lambda lib, h, w: lib.nn.functional.conv_transpose2d(h, w),
    "a sum of a leaf": lambda lib, h, w: (h + w[0, 0, 0, 0]).sum(-1),
    "a concatenation": lambda lib, h, w: lib.cat([h, h], 1),
    "attention with frozen queries and keys": lambda lib, h, w: lib.nn.functional.scaled_dot_product_attention(
        w.reshape(2, 4, 6, 3), w.reshape(2, 4, 6, 3) * 0.5, h
    ),
    "average pooling": lambda lib, h, w: lib.nn.functional.avg_pool2d(h, 2),
    "the largest": lambda lib, h, w: lib.topk(h, 3, -1)[0],
    "padding": lambda lib, h, w: lib.nn.functional.pad(h, (1, 1)),
}


def values() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.uniform(-2, 2, s) for s in ((2, 4, 6, 6), (4, 4, 3, 3))]


def tensors(lib: Any, device: Device | None) -> tuple[Any, Any]:
    x, w = values()
    if lib is torch:
        return torch.tensor(x, requires_grad=True), torch.tensor(w)
    return Tensor(x, dtype="float32", device=device, requires_grad=True), Tensor(w, dtype="float32", device=device)


def program(lib: Any, x: Any, w: Any, layer: Layer) -> Any:
    """Write in place to the input of a frozen layer. PyTorch saves more inputs than it needs, so it is called with a copy."""
    h = x * 1.5
    y = layer(lib, h, w)
    h = -h if lib is torch else h.neg_()
    return (y * y).sum() + h.sum()


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_the_input_of_a_frozen_layer_may_be_written_to(name: str, captured: bool, device: Device) -> None:
    theirs, frozen = tensors(torch, None)
    program(torch, theirs, frozen, LAYERS[name]).backward()
    x, w = tensors(ph, device)

    def step() -> None:
        x.grad = None
        program(ph, x, w, LAYERS[name]).backward()

    run = ph.jit(step) if captured else step
    for _ in range(3 if captured else 1):
        run()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [n for n in LAYERS if n not in ("a sum of a leaf",)])
def test_the_input_of_a_frozen_layer_is_freed(name: str, device: Device) -> None:
    x, w = tensors(ph, device)
    h = x.sin()
    memory = weakref.ref(h.buffer)
    y = LAYERS[name](ph, h, w)
    assert y.requires_grad
    assert y.buffer is not h.buffer
    del h
    assert memory() is None


@pytest.mark.parametrize("name", ["layer_norm", "batch_norm", "group_norm"])
def test_a_norm_keeps_nothing_if_only_its_bias_is_trained(name: str, device: Device) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (3, 4, 4))
    weights = Tensor(x, dtype="float32", device=device)
    bias = ph.zeros((4,), device=device, requires_grad=True)
    h = weights * 2
    memory = weakref.ref(h.buffer)
    if name == "layer_norm":
        y = F.layer_norm(h, (4,), None, bias)
    elif name == "batch_norm":
        y = F.batch_norm(h, None, None, None, bias, training=True)
    else:
        y = F.group_norm(h, 2, None, bias)
    del h
    assert memory() is None
    (y * weights).sum().backward()
    assert bias.grad is not None
    np.testing.assert_allclose(
        bias.grad.numpy(), x.sum((0, 1) if name == "layer_norm" else (0, 2)), rtol=1e-5, atol=1e-5
    )


def test_an_operand_that_is_read_may_not_be_written_to(device: Device) -> None:
    x, _ = tensors(ph, device)
    h = x * 1.5
    y = h * h
    h.neg_()
    with pytest.raises(AutogradError, match="was changed in place after it was saved"):
        y.sum().backward()


def test_second_gradients_of_frozen_operands_are_right(device: Device) -> None:
    x = Tensor([0.3, -0.7], device=device, requires_grad=True)
    w = Tensor([2.0, 3.0], device=device)
    (first,) = ph.grad(((x * x * w) ** 2).sum(), x, create_graph=True)
    (second,) = ph.grad(first.sum(), x)
    np.testing.assert_allclose(second.numpy(), 12 * np.array([4, 9]) * np.array([0.09, 0.49]), rtol=1e-5)


def test_a_checkpointed_frozen_layer_has_the_same_gradient(device: Device) -> None:
    found = []
    for call in (lambda f, *a: f(*a), ph.checkpoint):
        x, w = tensors(ph, device)
        call(lambda h, w=w: LAYERS["a convolution"](ph, h.sin() * 0.5, w).tanh(), x).sum().backward()
        assert x.grad is not None
        found.append(x.grad.numpy())
    np.testing.assert_array_equal(*found)


def test_an_op_without_a_derivative_is_named_in_the_error(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    x = Tensor([1.0, 2.0], device=device, requires_grad=True)
    y = x + ph.special.bessel_j0(x)
    with pytest.raises(AutogradError, match=r"\[bessel_j0\] has neither a gradient rule nor a decomposition"):
        y.sum().backward()
