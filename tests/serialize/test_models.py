"""Whole models are saved as data and reconstructed, without code in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn
from polyhal.hal.errors import IncompatibleFileError, PolyhalError
from polyhal.models import GPT, MLP, GPTConfig

pytestmark = pytest.mark.usefixtures("numpy_device")


class Net(nn.Module):
    """A user's class."""

    def __init__(self, width: int, *, depth: int = 2, activation: Any = nn.ReLU) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.activation = activation()
        self.register_buffer("scale", ph.ones((width,)))

    def forward(self, x: ph.Tensor) -> ph.Tensor:
        for layer in self.layers:
            x = self.activation(layer(x))
        return x * self.scale


def _shared() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.Tanh(), layer)


def _lazy() -> nn.Module:
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    model(ph.ones((2, 4)))
    return model


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(4))


def _grown() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 5))
    model.append(nn.Sequential({"norm": nn.LayerNorm(5, eps=1e-3), "out": nn.Linear(5, 2, bias=False)}))
    model[0] = nn.Linear(4, 5, bias=False)
    return model


MODELS = {
    "layers": lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(approximate="tanh"), nn.Dropout(0.3), nn.BatchNorm1d(8)),
    "shared": _shared,
    "lazy": _lazy,
    "encoder": _encoder,
    "grown": _grown,
    "mlp": lambda: MLP([4, 6, 2]),
    "own": lambda: Net(4, depth=3, activation=nn.Tanh),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", ["model.safetensors", "folder"])
def test_loaded_models_compute_equal_results(name: str, target: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    ph.save(model, tmp_path / target)
    again = ph.load(tmp_path / target, classes=[Net])
    assert type(again) is type(model)
    assert repr(again) == repr(model)
    x = ph.randn(3, 5, 4) if name == "encoder" else ph.randn(3, 4)
    assert np.array_equal(again.eval()(x).numpy(), model.eval()(x).numpy())
    assert len(list(again.parameters())) == len(list(model.parameters()))


def test_models_with_a_configuration(tmp_path: Path) -> None:
    model = GPT(GPTConfig(vocab_size=11, block_size=8, n_layer=1, n_head=2, n_embd=8))
    ph.save(model, tmp_path / "gpt.safetensors")
    again = ph.load(tmp_path / "gpt.safetensors")
    assert again.config == model.config
    tokens = ph.tensor([[1, 2, 3]])
    assert np.array_equal(again.eval()(tokens).numpy(), model.eval()(tokens).numpy())


def test_modes_dtypes_and_frozen_parameters_are_kept(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)).half()
    model[0].requires_grad_(False)
    model[1].eval()
    ph.save(model, tmp_path / "x.safetensors")
    again = ph.load(tmp_path / "x.safetensors")
    assert {k: v.dtype for k, v in again.state_dict().items()} == {k: v.dtype for k, v in model.state_dict().items()}
    assert [m.training for m in again.modules()] == [True, True, False, True]
    assert [p.requires_grad for p in again.parameters()] == [False, False, True, True]


def test_models_load_on_a_device(tmp_path: Path, device: ph.Device) -> None:
    ph.save(MODELS["layers"](), tmp_path / "x.safetensors")
    assert {p.device for p in ph.load(tmp_path / "x.safetensors", device).parameters()} == {device}


def test_loading_draws_no_random_numbers(tmp_path: Path) -> None:
    ph.save(MODELS["layers"](), tmp_path / "x.safetensors")
    state = ph.random.default_generator.get_state()
    ph.load(tmp_path / "x.safetensors")
    assert ph.random.default_generator.get_state() == state


def test_classes_of_the_user_must_be_passed(tmp_path: Path) -> None:
    ph.save(Net(3), tmp_path / "x.safetensors")
    with pytest.raises(IncompatibleFileError, match=r"class Net.*load\(path, classes=\[Net\]\)"):
        ph.load(tmp_path / "x.safetensors")


def test_arguments_that_are_not_data_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"Net, argument 'activation', is a function.*state_dict"):
        ph.save(Net(3, activation=lambda: nn.ReLU()), tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


def test_constructions_keep_no_tensors_alive() -> None:
    layer = nn.Linear(2, 2)
    assert "Linear(" not in repr(nn.Sequential(layer)._construction.args)
    assert nn.Embedding.from_pretrained(ph.ones((2, 3)))._construction.of is nn.Embedding


@pytest.mark.parametrize(
    "name",
    ["os.system", "builtins.eval", "polyhal.nn.module.importlib", "polyhal.load", "polyhal.nn.functional.relu"],
)
def test_files_cannot_name_other_code(name: str, tmp_path: Path) -> None:
    ph.save(nn.Linear(2, 2), tmp_path / "x")
    state = tmp_path / "x" / "state.json"
    content = json.loads(state.read_text())
    content["state"]["construction"]["class"] = name
    import hashlib

    content["sha256"] = hashlib.sha256(json.dumps(content["state"]).encode()).hexdigest()
    state.write_text(json.dumps(content))
    with pytest.raises(PolyhalError, match=name.rpartition(".")[2]):
        ph.load(tmp_path / "x")
