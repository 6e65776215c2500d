"""`save` and `load` with file objects, such as `io.BytesIO`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn


def test_states_and_models_go_through_memory(device: ph.Device) -> None:
    model = nn.Linear(3, 2, device=device)
    for saved in (model.state_dict(), model):
        file = io.BytesIO(b"before")
        file.seek(6)
        assert ph.save(saved, file) is file
        assert file.getvalue().startswith(b"before")
        file.seek(6)
        loaded = ph.load(file, device)
        state = loaded.state_dict() if isinstance(loaded, nn.Module) else loaded
        np.testing.assert_array_equal(state["weight"].numpy(), model.weight.numpy())


def test_files_of_other_programs_are_read_from_memory(numpy_device: ph.Device) -> None:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save({"w": torch.arange(3)}, file)
    file.seek(0)
    assert ph.load(file)["w"].tolist() == [0, 1, 2]


def test_an_open_file_on_the_disk(tmp_path: Path, numpy_device: ph.Device) -> None:
    with (tmp_path / "x.safetensors").open("wb") as file:
        ph.save({"x": ph.tensor([1 + 2j]), "n": 3}, file)
    assert ph.load(tmp_path / "x.safetensors")["x"].tolist() == [1 + 2j]
    with (tmp_path / "x.safetensors").open("rb") as file:
        assert ph.load(file)["n"] == 3


def test_files_that_cannot_be_read_as_streams_are_refused() -> None:
    for file, lazy in ((io.StringIO("x"), False), (io.BytesIO(b"x"), True), (3, False)):
        with pytest.raises(TypeError, match="open for bytes"):
            ph.load(file, "numpy", lazy)  # type: ignore[arg-type]
    with pytest.raises(ph.errors.CorruptFileError):
        ph.load(io.BytesIO(b"not a file"), "numpy")
