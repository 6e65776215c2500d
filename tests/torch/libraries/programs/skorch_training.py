"""skorch: its training loop."""

from __future__ import annotations

import skorch
import torch
from torch import nn

from tests.torch.libraries.cases import whole_case


def _train(device: str, mode: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x, y = torch.randn(24, 4), torch.randn(24, 1)
    net = skorch.NeuralNetRegressor(
        nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)),
        max_epochs=3,
        batch_size=8,
        optimizer=torch.optim.Adam,
        iterator_train__shuffle=False,
        train_split=None,
        device=device,
        compile=mode == "compiled",
        verbose=0,
    )
    net.fit(x, y)
    losses = torch.tensor(net.history[:, "train_loss"])
    return [losses, torch.from_numpy(net.predict(x)), *net.module_.parameters()]


whole_case("skorch", "NeuralNetRegressor", _train, modes=("eager", "compiled"))
