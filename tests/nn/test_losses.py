"""Losses, bags and attention with all options, compared with PyTorch's on the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph
from polyhal import nn

from .compare import array, check_layer, close

F, TF = nn.functional, torch.nn.functional
SIGNS = np.where(np.arange(4) % 2, 1, -1).astype(np.float32)
CASES: list[tuple[str, dict[str, Any], tuple[np.ndarray, ...]]] = [
    ("HuberLoss", {"delta": 0.7}, (array(4, 3), array(4, 3, seed=1))),
    ("KLDivLoss", {"reduction": "batchmean"}, (array(4, 3), np.abs(array(4, 3, seed=1)))),
    ("KLDivLoss", {"log_target": True}, (array(4, 3), array(4, 3, seed=1))),
    ("PoissonNLLLoss", {"full": True}, (array(4, 3), np.arange(12, dtype=np.float32).reshape(4, 3))),
    ("BCELoss", {}, (np.array([0.0, 1.0, 0.3, 0.9], np.float32), np.array([0, 0.5, 1, 0], np.float32))),
    ("MarginRankingLoss", {"margin": 0.3}, (array(4), array(4, seed=1), SIGNS)),
    ("HingeEmbeddingLoss", {}, (array(4), SIGNS)),
    ("SoftMarginLoss", {"reduction": "sum"}, (array(4), SIGNS)),
    ("CosineEmbeddingLoss", {"margin": 0.1}, (array(4, 5), array(4, 5, seed=1), SIGNS)),
    ("TripletMarginLoss", {"swap": True, "p": 3.0}, (array(4, 5), array(4, 5, seed=1), array(4, 5, seed=2))),
    ("MultiMarginLoss", {"p": 2, "margin": 0.5}, (array(4, 5), np.array([0, 4, 2, 1]))),
    ("MultiLabelMarginLoss", {}, (array(2, 4), np.array([[3, 0, -1, 1], [1, -1, 2, 3]]))),
    ("MultiLabelSoftMarginLoss", {}, (array(2, 4), np.array([[1, 0, 0, 1], [0, 1, 1, 1]], np.float32))),
    ("CrossEntropyLoss", {"label_smoothing": 0.1}, (array(3, 4), np.abs(array(3, 4, seed=1)))),
]


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize(("name", "settings", "inputs"), CASES, ids=[c[0] for c in CASES])
def test_losses(device: ph.Device, name: str, settings: dict[str, Any], inputs: tuple[np.ndarray, ...]) -> None:
    check_layer(
        getattr(nn, name)(**settings),
        getattr(torch.nn, name)(**settings),
        *inputs,
        device=device,
        call=lambda layer, xs: layer(xs[0], *(x.detach() for x in xs[1:])),
    )


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize(("of_input", "of_target"), [("float16", "float32"), ("float32", "float16")])
def test_huber_loss_of_two_dtypes_has_the_dtype_of_its_input(
    device: ph.Device, of_input: str, of_target: str, reduction: Any
) -> None:
    x, y = array(4, 3).astype(of_input), array(4, 3, seed=1).astype(of_target)
    ours = F.huber_loss(ph.tensor(x, device=device), ph.tensor(y, device=device), reduction)
    theirs = TF.huber_loss(torch.tensor(x), torch.tensor(y), reduction)
    assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.") == of_input
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-3)


def test_ctc_of_long_and_impossible_labels(device: ph.Device) -> None:
    scores = array(6, 3, 5)
    targets, steps, labels = np.array([[1, 2, 2], [3, 1, 4], [1, 1, 1]]), [6, 4, 3], [3, 2, 3]
    x = ph.tensor(scores, device=device, requires_grad=True)
    y = torch.tensor(scores, requires_grad=True)
    ours = F.ctc_loss(F.log_softmax(x, -1), ph.tensor(targets, device=device), steps, labels, zero_infinity=True)
    theirs = TF.ctc_loss(y.log_softmax(-1), torch.tensor(targets), steps, labels, zero_infinity=True)
    close(ours, theirs)
    ours.backward()
    theirs.backward()
    close(x.grad, y.grad)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_with_padding_and_an_empty_one(device: ph.Device, mode: Any) -> None:
    index, offsets, weight = np.array([1, 0, 3, 2, 1]), np.array([0, 2, 2, 4]), array(5, 3)
    w, v = ph.tensor(weight, device=device, requires_grad=True), torch.tensor(weight, requires_grad=True)
    ours = F.embedding_bag(
        ph.tensor(index, device=device), w, ph.tensor(offsets, device=device), mode=mode, padding_idx=0
    )
    theirs = TF.embedding_bag(torch.tensor(index), v, torch.tensor(offsets), mode=mode, padding_idx=0)
    close(ours, theirs)
    seed = array(4, 3, seed=5)
    ours.backward(ph.tensor(seed, device=device))
    theirs.backward(torch.tensor(seed))
    close(w.grad, v.grad)


def test_rows_longer_than_the_limit_are_shortened_in_the_table(device: ph.Device) -> None:
    index, weight = np.array([0, 2, 2]), array(4, 3, scale=3)
    w, v = ph.tensor(weight, device=device), torch.tensor(weight)
    close(
        F.embedding(ph.tensor(index, device=device), w, max_norm=1.0),
        TF.embedding(torch.tensor(index), v, max_norm=1.0),
    )
    close(w, v)


@pytest.mark.parametrize("mask", [None, "causal", (1, 4, 5), (2, 6, 4, 5)], ids=str)
def test_queries_in_groups_share_keys(device: ph.Device, mask: Any) -> None:
    arrays = array(2, 6, 4, 8), array(2, 2, 5, 8, seed=1), array(2, 2, 5, 8, seed=2)
    ours = [ph.tensor(x, device=device, requires_grad=True) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    options: dict[str, Any] = {"enable_gqa": True, "is_causal": mask == "causal"}
    added = array(*mask, seed=3) if isinstance(mask, tuple) else None
    y = F.scaled_dot_product_attention(*ours, None if added is None else ph.tensor(added, device=device), **options)
    z = TF.scaled_dot_product_attention(*theirs, None if added is None else torch.tensor(added), **options)
    close(y, z)
    y.sum().backward()
    z.sum().backward()
    for x, x_of_torch in zip(ours, theirs, strict=True):
        close(x.grad, x_of_torch.grad)


@pytest.mark.parametrize("extra", [{"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 5, "vdim": 3}])
def test_multihead_attention_with_other_keys(device: ph.Device, extra: dict[str, int]) -> None:
    key, value = array(7, 2, extra.get("kdim", 8), seed=1), array(7, 2, extra.get("vdim", 8), seed=2)
    check_layer(
        nn.MultiheadAttention(8, 2, device=device, **extra),
        torch.nn.MultiheadAttention(8, 2, **extra),
        array(4, 2, 8),
        key,
        value,
        device=device,
        call=lambda layer, xs: layer(*xs)[0],
    )


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_a_transformer(device: ph.Device) -> None:
    ours = nn.Transformer(8, 2, 1, 1, 16, 0.0, device=device)
    theirs = torch.nn.Transformer(8, 2, 1, 1, 16, 0.0)
    check_layer(ours, theirs, array(5, 2, 8), array(4, 2, 8, seed=1), device=device, tolerance=1e-4)
