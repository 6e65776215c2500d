"""efficientnet-pytorch: a small EfficientNet."""

from __future__ import annotations

import torch
from efficientnet_pytorch import EfficientNet
from efficientnet_pytorch.utils import BlockDecoder, GlobalParams

from tests.torch.libraries.cases import Made, sgd, trained_case


def _network() -> Made:
    blocks = BlockDecoder.decode(["r1_k3_s11_e1_i32_o16_se0.25", "r2_k3_s22_e6_i16_o24_se0.25"])
    parameters = GlobalParams(
        width_coefficient=0.5,
        depth_coefficient=1.0,
        image_size=16,
        dropout_rate=0.0,
        num_classes=5,
        batch_norm_momentum=0.99,
        batch_norm_epsilon=1e-3,
        drop_connect_rate=0.0,
        depth_divisor=8,
        min_depth=None,
        include_top=True,
    )
    return EfficientNet(blocks, parameters), {"inputs": torch.randn(4, 3, 16, 16)}


trained_case("efficientnet-pytorch", "EfficientNet of two stages", _network, optimizer=sgd)
