"""Results of recurrent layers that are overwritten before the backward pass: gradients use the values before the write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 2, 4)).astype(np.float32)
WRITES: dict[str, Callable[[Any], object]] = {
    "by an op": lambda out: out.mul_(3.0),
    "of a part": lambda out: out[1].neg_(),
    "by an assignment": lambda out: out.__setitem__((slice(None), 0), 2.0),
    "of all": lambda out: out.zero_(),
}


def _expected(layer: Any, write: Callable[[Any], object]) -> np.ndarray:
    twin = getattr(torch.nn, type(layer).__name__)(4, 5).double()
    for name, p in layer.named_parameters():
        getattr(twin, name).data.copy_(torch.tensor(p.detach().numpy()))
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    out = twin(x)[0]
    write(out)
    (out * out).sum().backward()
    assert x.grad is not None
    return x.grad.numpy()


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("is_captured", [False, True], ids=["eager", "captured"])
def test_the_result_of_a_recurrent_layer_may_be_overwritten(
    device: ph.Device, kind: str, write: str, is_captured: bool
) -> None:
    layer = getattr(nn, kind)(4, 5).to(device)

    def function(x: ph.Tensor) -> ph.Tensor:
        out = layer(x)[0]
        WRITES[write](out)
        return out

    step = ph.jit(function, warm_up=False) if is_captured else function
    expected = _expected(layer, WRITES[write])
    for _ in range(3 if is_captured else 1):
        x = ph.tensor(X, device=device, requires_grad=True)
        out = step(x)
        (out * out).sum().backward()
        assert x.grad is not None
        # sums of at most 3 * 5 * 2 terms, each after three steps of products of 5 terms
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_result_that_is_not_overwritten_is_not_copied(device: ph.Device) -> None:
    layer = nn.RNN(4, 5).to(device)
    out = layer(ph.tensor(X, device=device))[0]
    saved = out.node.saved["out"]
    assert saved.buffer is out.buffer
    (out * 2).sum().backward(retain_graph=True)
    assert out.node.saved["out"] is saved
