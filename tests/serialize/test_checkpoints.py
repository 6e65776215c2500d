"""Training that is saved and resumed continues exactly as without the interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn, optim
from polyhal.data import DataLoader, TensorDataset
from polyhal.hal.errors import IncompatibleFileError, PolyhalError
from polyhal.serialize import files


class Training:
    """A training with dropout, momentum, schedule and shuffling: everything that has a state."""

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


def _moved(parts: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the parts and the generator, as plain values and bytes."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        return (str(value.dtype), value.numpy().tobytes()) if isinstance(value, ph.Tensor) else value

    return {"random": ph.get_rng_state(), **{name: plain(part.state_dict()) for name, part in parts.items()}}


@pytest.mark.parametrize(
    ("part", "spoil"),
    [
        ("model", lambda state: {**state, "4.weight": np.zeros((3, 9), np.float32)}),
        ("model", lambda state: {k: v for k, v in state.items() if k != "4.weight"}),
        ("optimizer", lambda state: {**state, "param_groups": [{**state["param_groups"][0], "params": [0]}]}),
        ("optimizer", lambda state: {**state, "state": {n: {"exp_avg": np.zeros(99)} for n in state["state"]}}),
        ("optimizer", lambda state: {**state, "param_groups": [[0, 1]]}),
        ("scheduler", lambda state: {"optimizer": 3, "_set": 3, "last_epoch": "x"}),
        ("loader", lambda state: {**state, "batch_size": 7}),
        ("loader", lambda state: {**state, "position": "x"}),
        ("random", lambda state: {"seed": 1, "offset": []}),
    ],
)
def test_a_load_that_fails_changes_nothing(part: str, spoil: Any, device: ph.Device, tmp_path: Path) -> None:
    """Training continues to the weights of a training without the failed load."""
    saved = Training(device, 5)
    saved.run(2)
    path = ph.save_checkpoint(tmp_path / "x", **saved.parts())
    state = files.load(path, "numpy")
    files.save({**state, part: spoil(state[part])}, path)
    weights = []
    for tries in (False, True):
        training = Training(device, 1)
        training.run(4)
        if tries:
            before = _moved(training.parts())
            with pytest.raises(PolyhalError):
                ph.load_checkpoint(path, **training.parts())
            assert _moved(training.parts()) == before
        training.run(4)
        weights.append([p.numpy().tobytes() for p in training.model.parameters()])
    assert weights[0] == weights[1]


def test_a_damaged_tensor_is_found_before_anything_is_loaded(device: ph.Device, tmp_path: Path) -> None:
    saved = Training(device, 5)
    saved.run(2)
    path = ph.save_checkpoint(tmp_path / "x.ckpt", **saved.parts())
    whole = path.read_bytes()
    at = whole.rindex(np.asarray(saved.model.state_dict()["4.bias"].numpy()).tobytes())
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    training = Training(device, 1)
    training.run(3)
    before = _moved(training.parts())
    with pytest.raises(PolyhalError, match="was altered"):
        ph.load_checkpoint(path, **training.parts())
    assert _moved(training.parts()) == before


def test_a_load_that_fails_keeps_the_number_of_skipped_steps(device: ph.Device, tmp_path: Path) -> None:
    training = Training(device, 1)
    training.run(1)
    path = ph.save_checkpoint(tmp_path / "x", **training.parts())
    state = files.load(path, "numpy")
    files.save({**state, "loader": {**state["loader"], "batch_size": 7}}, path)
    for skip in (1.0, 1.0, 0.0):
        training.optimizer.step(skip=ph.tensor(skip, device=device))
    with pytest.raises(PolyhalError, match="batch_size"):
        ph.load_checkpoint(path, **training.parts())
    assert {s["step"] for s in training.optimizer.state_dict()["state"].values()} == {2}
