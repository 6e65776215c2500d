"""xLSTM: blocks of matrix memory."""

from __future__ import annotations

import torch
from xlstm import mLSTMBlockConfig, mLSTMLayerConfig, xLSTMBlockStack, xLSTMBlockStackConfig

from tests.torch.libraries.cases import Made, trained_case


def _stack() -> Made:
    layer = mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=2)
    config = xLSTMBlockStackConfig(
        mlstm_block=mLSTMBlockConfig(mlstm=layer), context_length=8, num_blocks=2, embedding_dim=16
    )
    return xLSTMBlockStack(config), {"x": torch.randn(2, 8, 16)}


trained_case("xlstm", "stack of mLSTM blocks", _stack)
