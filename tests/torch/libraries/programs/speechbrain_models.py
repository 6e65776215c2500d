"""SpeechBrain: ECAPA-TDNN."""

from __future__ import annotations

import torch
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

from tests.torch.libraries.cases import Made, sgd, trained_case


def _speakers() -> Made:
    model = ECAPA_TDNN(
        8,
        lin_neurons=8,
        channels=[8, 8, 8, 8, 24],
        kernel_sizes=[3, 3, 3, 3, 1],
        dilations=[1, 2, 3, 4, 1],
        attention_channels=8,
        res2net_scale=2,
        se_channels=8,
    )
    return model, {"x": torch.randn(3, 12, 8), "lengths": torch.tensor([1.0, 0.5, 0.75])}


trained_case("speechbrain", "ECAPA-TDNN", _speakers, optimizer=sgd)
