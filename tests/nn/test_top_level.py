"""Layers and losses at the top level take PyTorch's arguments there, in PyTorch's order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import polyhal as ph

from .compare import array, close

X, Y = array(2, 3, 6), array(2, 3, 6, seed=1)
SIGNS = np.sign(array(2, 3, seed=2))
ROW, OTHER, THIRD = array(2, 3), array(2, 3, seed=4), array(2, 3, seed=5)
CHANNEL = np.abs(array(3))

CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("conv1d", (X, array(4, 3, 2), None, 2, 1)),
    ("conv_transpose1d", (X, array(3, 2, 2), None, 2, 1)),
    ("max_pool1d", (X, 2)),
    ("avg_pool1d", (X, 2, 1, 1)),
    ("adaptive_avg_pool1d", (X, 4)),
    ("adaptive_max_pool1d", (X, 4)),
    ("batch_norm", (X, CHANNEL, CHANNEL + 1, CHANNEL + 2, CHANNEL + 3, False, 0.1, 1e-5, False)),
    ("instance_norm", (X, CHANNEL, CHANNEL + 1, None, None, True, 0.1, 1e-5, False)),
    ("layer_norm", (ROW, (3,), CHANNEL, None, 1e-5, False)),
    ("group_norm", (X, 3, CHANNEL, None, 1e-5, False)),
    ("rms_norm", (ROW, (3,))),
    ("channel_shuffle", (array(1, 4, 2, 2), 2)),
    ("pixel_shuffle", (array(1, 4, 2, 2), 2)),
    ("bilinear", (ROW, OTHER, array(2, 3, 3))),
    ("binary_cross_entropy_with_logits", (ROW, np.abs(OTHER), CHANNEL, CHANNEL + 1, 2)),
    ("kl_div", (ROW, np.abs(OTHER), 0)),
    ("cosine_embedding_loss", (ROW, OTHER, SIGNS[:, 0], 0.5, 2)),
    ("hinge_embedding_loss", (ROW, SIGNS, 0.5, 0)),
    ("margin_ranking_loss", (ROW, OTHER, SIGNS, 0.5, 1)),
    ("triplet_margin_loss", (ROW, OTHER, THIRD, 1.0, 2.0, 1e-6, True, 0)),
    ("poisson_nll_loss", (ROW, np.abs(OTHER), True, True, 1e-8, 2)),
    ("dropout", (ROW, 0.5, False)),
    ("feature_dropout", (X, 0.5, False)),
    ("alpha_dropout", (X, 0.5, False)),
    ("feature_alpha_dropout", (X, 0.5, False)),
    ("rrelu", (ROW, 0.1, 0.3)),
]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_a_call_of_the_top_level_agrees_with_pytorch(name: str, arguments: tuple[Any, ...]) -> None:
    ours = getattr(ph, name)(*(ph.tensor(a, device="numpy") if isinstance(a, np.ndarray) else a for a in arguments))
    theirs = getattr(torch, name)(*(torch.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments))
    pairs = zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]
    for a, b in pairs:
        close(a, b)


def test_dropout_of_features_drops_whole_channels() -> None:
    out = ph.feature_dropout(ph.ones((8, 16, 2, 2), device="numpy"), 0.5, True).numpy().reshape(8 * 16, 4)
    assert set(out.ravel().tolist()) == {0.0, 2.0}
    assert (out == out[:, :1]).all()


def test_ctc_loss_takes_a_reduction_by_number() -> None:
    x = np.log(np.full((4, 1, 3), 1 / 3, np.float32))
    ours = ph.ctc_loss(ph.tensor(x, device="numpy"), ph.tensor([[1, 2]], device="numpy"), (4,), (2,), 0, 2)
    close(ours, torch.ctc_loss(torch.tensor(x), torch.tensor([[1, 2]]), (4,), (2,), 0, 2))
