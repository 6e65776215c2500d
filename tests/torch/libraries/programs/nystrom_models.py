"""nystrom-attention: attention by landmarks."""

from __future__ import annotations

import torch
from nystrom_attention import Nystromformer

from tests.torch.libraries.cases import Made, trained_case


def _nystrom() -> Made:
    return Nystromformer(dim=16, depth=1, dim_head=8, heads=2, num_landmarks=4, pinv_iterations=3), {
        "x": torch.randn(2, 8, 16)
    }


trained_case("nystrom-attention", "Nystromformer", _nystrom)
