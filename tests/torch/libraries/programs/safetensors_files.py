"""safetensors: models stored from the device and loaded to it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

from tests.torch.libraries.cases import whole_case
from tests.torch.libraries.refusals import assert_refused


def _stored_and_loaded(device: str, mode: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)).to(device)
    model[1].weight = model[0].weight
    x = torch.ones(2, 4, device=device)
    expected = model(x).detach()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_model(model, str(path))
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        load_model(model, str(path))
        save_file({"x": x + 1}, path)
        loaded = _loaded(path, device)
    return [expected, model(x).detach(), loaded]


def _loaded(path: Path, device: str) -> torch.Tensor:
    """Load to the CPU and move: the library, in Rust, has a list of devices."""
    if device != "cpu":
        assert_refused(lambda: load_file(path, device=device), f"device {device} is invalid", SafetensorError)
    return load_file(path)["x"].to(device)


whole_case("safetensors", "save_model, load_model, load_file", _stored_and_loaded)
