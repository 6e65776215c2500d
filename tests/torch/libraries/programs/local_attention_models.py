"""local-attention: a transformer with windows of attention."""

from __future__ import annotations

import torch
from local_attention import LocalTransformer

from tests.torch.libraries.cases import Made, trained_case


def _local() -> Made:
    model = LocalTransformer(
        num_tokens=30,
        dim=32,
        depth=2,
        max_seq_len=16,
        local_attn_window_size=4,
        causal=True,
        dim_head=16,
        heads=2,
        num_residual_streams=1,
    )
    return model, {"x": torch.randint(30, (2, 12))}


trained_case("local-attention", "LocalTransformer", _local)
