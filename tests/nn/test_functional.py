"""Functions against PyTorch's, unless a layer covers them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn
from polyhal.hal.errors import NonFiniteError, ShapeError

from .compare import array, check_layer, close

F, TF = nn.functional, torch.nn.functional
REDUCTIONS = ["mean", "sum", "none"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("extra", [(), (3,), (2, 3)])
def test_cross_entropy(
    device: ph.Device, reduction: str, smoothing: float, weighted: bool, extra: tuple[int, ...]
) -> None:
    target = np.random.default_rng(0).integers(0, 5, (4, *extra))
    target.reshape(-1)[1] = -100
    weight = np.array([0.5, 1.0, 2.0, 0.1, 3.0], np.float32) if weighted else None
    settings: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
    ours = nn.CrossEntropyLoss(None if weight is None else ph.tensor(weight, device=device), **settings)
    theirs = torch.nn.CrossEntropyLoss(None if weight is None else torch.tensor(weight), **settings)
    check_layer(ours, theirs, array(4, 5, *extra, scale=3), target, device=device)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(device: ph.Device, reduction: str, weighted: bool) -> None:
    target = np.array([[0, 2, 1], [1, 1, 2]])
    weight = np.array([0.5, 1.0, 2.0], np.float32) if weighted else None
    weights = None if weight is None else ph.tensor(weight, device=device)
    ours = nn.NLLLoss(weights, ignore_index=1, reduction=reduction)
    theirs = torch.nn.NLLLoss(None if weight is None else torch.tensor(weight), ignore_index=1, reduction=reduction)
    check_layer(ours, theirs, array(2, 3, 3), target, device=device)


def test_cross_entropy_of_one_sample(device: ph.Device) -> None:
    logits = array(5)
    found = F.cross_entropy(ph.tensor(logits, device=device), ph.tensor(2, device=device))
    close(found, TF.cross_entropy(torch.tensor(logits), torch.tensor(2)))


def test_cross_entropy_shape_error() -> None:
    with pytest.raises(ShapeError, match=r"\(N, C, d1, \.\.\.\) and \(N, d1, \.\.\.\)"):
        F.cross_entropy(ph.zeros((4, 5), device="numpy"), ph.zeros((5,), "int64", device="numpy"))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["MSELoss", "L1Loss", "SmoothL1Loss", "BCEWithLogitsLoss"])
def test_pointwise_losses(device: ph.Device, name: str, reduction: str) -> None:
    x, y = array(4, 5, scale=2), array(4, 5, seed=1, scale=2)
    if name == "BCEWithLogitsLoss":
        y = 1 / (1 + np.exp(-y))
    check_layer(
        getattr(nn, name)(reduction=reduction), getattr(torch.nn, name)(reduction=reduction), x, y, device=device
    )


def test_smooth_l1_beta_and_shapes(device: ph.Device) -> None:
    check_layer(nn.SmoothL1Loss(beta=0.3), torch.nn.SmoothL1Loss(beta=0.3), array(7), array(7, seed=1), device=device)
    with pytest.raises(ShapeError, match="equal shapes"):
        F.mse_loss(ph.zeros((2, 1), device=device), ph.zeros((2,), device=device))
    with pytest.raises(ValueError, match="mean, sum or none"):
        F.mse_loss(ph.zeros((2,), device=device), ph.zeros((2,), device=device), reduction="max")  # type: ignore[arg-type]


def test_bce_weights(device: ph.Device) -> None:
    x, y, w, p = (
        array(4, 3, scale=30),
        (array(4, 3, seed=1) > 0).astype(np.float32),
        np.abs(array(4, 1, seed=2)),
        np.abs(array(3, seed=3)),
    )
    found = F.binary_cross_entropy_with_logits(
        *(ph.tensor(v, device=device) for v in (x, y, w)), pos_weight=ph.tensor(p, device=device)
    )
    close(found, TF.binary_cross_entropy_with_logits(*(torch.tensor(v) for v in (x, y, w)), pos_weight=torch.tensor(p)))


@pytest.mark.parametrize(("kind", "causal"), [("none", False), ("none", True), ("bool", False), ("float", False)])
@pytest.mark.parametrize("length", [4, 6])
def test_attention(device: ph.Device, kind: str, causal: bool, length: int) -> None:
    q, k, v = array(2, 3, 4, 5), array(2, 3, length, 5, seed=1), array(2, 3, length, 7, seed=2)
    mask = {"none": None, "bool": array(4, length, seed=3) > -1, "float": array(4, length, seed=3)}[kind]
    ours = F.scaled_dot_product_attention(
        *(ph.tensor(x, device=device) for x in (q, k, v)),
        None if mask is None else ph.tensor(mask, device=device),
        is_causal=causal,
    )
    theirs = TF.scaled_dot_product_attention(
        *(torch.tensor(x) for x in (q, k, v)), None if mask is None else torch.tensor(mask), is_causal=causal
    )
    close(ours, theirs)


def test_attention_dropout_keeps_the_mean(device: ph.Device) -> None:
    q, k = ph.zeros((2, 64, 8), device=device), ph.zeros((2, 64, 8), device=device)
    out = F.scaled_dot_product_attention(
        q, k, ph.ones((2, 64, 4), device=device), dropout_p=0.5, generator=ph.random.Generator(0)
    ).numpy()
    assert abs(out.mean() - 1) < 0.1
    assert out.std() > 0.05


def test_dropout(device: ph.Device) -> None:
    x = ph.ones((1000, 10), device=device, requires_grad=True)
    out = F.dropout(x, 0.3, generator=ph.random.Generator(1))
    values = out.numpy()
    assert set(np.unique(values)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((values == 0).mean() - 0.3) < 0.02
    out.sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), values)
    layer = nn.Dropout(0.3)
    assert layer.eval()(x) is x
    assert not F.dropout(x, 1.0).numpy().any()
    with pytest.raises(ValueError, match="p is 2"):
        F.dropout(x, 2.0)


def test_one_hot_pad_normalize(device: ph.Device) -> None:
    index = np.array([[0, 2], [1, 3]])
    close(F.one_hot(ph.tensor(index, device=device)), TF.one_hot(torch.tensor(index)))
    assert F.one_hot(ph.tensor(index, device=device), 6).shape == (2, 2, 6)
    x = array(2, 3, 4, 5)
    for widths in [(1, 2), (1, 2, 0, 3), (-1, 2, 1, -1), (0, 0, 1, 1, 2, 0)]:
        close(F.pad(ph.tensor(x, device=device), widths, value=0.5), TF.pad(torch.tensor(x), widths, value=0.5))
    for p in (1.0, 2.0, 3.0, math.inf):
        close(F.normalize(ph.tensor(x, device=device), p, -1), TF.normalize(torch.tensor(x), p, -1))


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm(device: ph.Device, norm_type: float, max_norm: float) -> None:
    shapes = [(3, 4), (5,), ()] * 12  # more than one launch takes
    ours = [nn.Parameter(ph.zeros(s, device=device)) for s in shapes]
    theirs = [torch.nn.Parameter(torch.zeros(s)) for s in shapes]
    for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        g = array(*shapes[i], seed=i)
        p.grad, q.grad = ph.tensor(g, device=device), torch.tensor(g)
    close(
        nn.utils.clip_grad_norm_(ours, max_norm, norm_type), torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    )
    for p, q in zip(ours, theirs, strict=True):
        close(p.grad, q.grad)


def test_clip_grad_errors_and_values(device: ph.Device) -> None:
    p = nn.Parameter(ph.zeros((3,), device=device))
    assert nn.utils.clip_grad_norm_([p], 1.0).item() == 0
    p.grad = ph.tensor([1.0, -7.0, math.nan], device=device)
    with pytest.raises(NonFiniteError, match="nan"):
        nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)
    nn.utils.clip_grad_value_(p, 0.5)
    np.testing.assert_array_equal(p.grad.numpy(), np.array([0.5, -0.5, np.nan], np.float32))


def test_parameters_as_a_vector(device: ph.Device) -> None:
    model = nn.Linear(3, 2, device=device)
    vector = nn.utils.parameters_to_vector(model.parameters())
    assert vector.shape == (8,)
    nn.utils.vector_to_parameters(vector.detach() * 2, model.parameters())
    close(nn.utils.parameters_to_vector(model.parameters()), vector.detach().numpy() * 2)
    with pytest.raises(ShapeError, match=r"expected \(8,\)"):
        nn.utils.vector_to_parameters(vector[:3], model.parameters())
