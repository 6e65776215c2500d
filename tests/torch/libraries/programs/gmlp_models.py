"""g-mlp-pytorch: a language model of gates."""

from __future__ import annotations

import torch
from g_mlp_pytorch import gMLP

from tests.torch.libraries.cases import Made, trained_case


def _gates() -> Made:
    return gMLP(num_tokens=30, dim=16, depth=2, seq_len=8, causal=True), {"x": torch.randint(30, (2, 8))}


trained_case("g-mlp-pytorch", "gMLP", _gates)
