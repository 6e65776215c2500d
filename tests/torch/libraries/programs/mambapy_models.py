"""mambapy: Mamba by a parallel scan."""

from __future__ import annotations

import torch
from mambapy.mamba import Mamba, MambaConfig

from tests.torch.libraries.cases import Made, trained_case


def _mamba() -> Made:
    return Mamba(MambaConfig(d_model=16, n_layers=2, d_state=4)), {"x": torch.randn(2, 8, 16)}


trained_case("mambapy", "Mamba", _mamba)
