"""x-transformers: a language model with a few of its options."""

from __future__ import annotations

import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

from tests.torch.libraries.cases import Made, trained_case


def _decoder() -> Made:
    layers = Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True)
    model = TransformerWrapper(num_tokens=40, max_seq_len=16, attn_layers=layers)
    return AutoregressiveWrapper(model), {"x": torch.randint(40, (2, 12))}


trained_case("x-transformers", "decoder with its loss", _decoder)
