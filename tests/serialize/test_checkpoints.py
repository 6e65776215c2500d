"""Training that is interrupted, saved and resumed goes on exactly as if it had not been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim
from polyhal.data import DataLoader, TensorDataset
from polyhal.hal.errors import IncompatibleFileError


class Training:
    """Dropout, momentum, schedule and shuffling: everything that has a state."""

    def __init__(self, device: ph.Device, seed: int) -> None:
        ph.manual_seed(seed)
        rng = np.random.default_rng(0)
        data = TensorDataset(rng.normal(size=(40, 6)).astype(np.float32), rng.integers(0, 3, 40).astype(np.int32))
        layers = [
            nn.Linear(6, 8, device=device),
            nn.BatchNorm1d(8, device=device),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(8, 3, device=device),
        ]
        self.model = nn.Sequential(*layers)
        self.optimizer = optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = optim.WarmupCosine(self.optimizer, 3, 20)
        self.loader = DataLoader(data, 8, shuffle=True, device=device)

    def run(self, steps: int) -> None:
        while steps:
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                steps -= 1
                if not steps:
                    return

    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler, "loader": self.loader}


@pytest.mark.parametrize("name", ["training.ckpt", "folder"])
def test_resume_is_exact(device: ph.Device, tmp_path: Path, name: str) -> None:
    whole = Training(device, 1)
    whole.run(7)
    ph.save_checkpoint(tmp_path / name, **whole.parts(), extra={"steps": 7, "best": 0.25})
    # A pass that was left early would count as done; the loaded position is in the middle of it.
    whole.loader.load_state_dict(whole.loader.state_dict())
    whole.run(6)
    resumed = Training(device, 2)
    assert ph.load_checkpoint(tmp_path / name, **resumed.parts()) == {"steps": 7, "best": 0.25}
    resumed.run(6)
    for (key, a), b in zip(whole.model.state_dict().items(), resumed.model.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=key)
    assert resumed.scheduler.get_last_lr() == whole.scheduler.get_last_lr()


def test_parts_may_be_left_out(tmp_path: Path) -> None:
    device = ph.Device("numpy")
    path = ph.save_checkpoint(tmp_path / "model", model=nn.Linear(2, 2, device=device))
    state = ph.random.default_generator.get_state()
    assert ph.load_checkpoint(path, model=nn.Linear(2, 2, device=device), restore_random=False) == {}
    assert ph.random.default_generator.get_state() != state
    with pytest.raises(IncompatibleFileError, match="expected also optimizer"):
        ph.load_checkpoint(path, optimizer=optim.SGD(nn.Linear(2, 2, device=device).parameters()))
    with pytest.raises(nn.StateDictError, match="shapes differ"):
        ph.load_checkpoint(path, model=nn.Linear(3, 2, device=device))
