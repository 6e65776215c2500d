"""Low-rank adapters: their formula, their gradients, merging, and PEFT's files."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.adapters import LoraLinear, LoraSettings, adapters, add_lora, load_adapter, merge_lora, save_adapter
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError
from polyhal.hal.quantization.formats import dequantize, quantize
from polyhal.nn import Linear, Module, ModuleDict, QuantizedLinear
from polyhal.utils.files import write_json

RNG = np.random.default_rng(0)


class Network(Module):
    """Two linear layers and an output layer, named as in language models."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = ModuleDict({"up_proj": Linear(6, 8, device="numpy"), "down_proj": Linear(8, 6, device="numpy")})
        self.lm_head = Linear(6, 5, device="numpy")

    def forward(self, x: ph.Tensor) -> ph.Tensor:
        out: ph.Tensor = self.lm_head(self.layers["down_proj"](ph.tanh(self.layers["up_proj"](x))))
        return out


def adapted(**settings: Any) -> tuple[Network, LoraSettings]:
    """Return a network whose adapters have weights other than 0."""
    ph.manual_seed(1)
    made = LoraSettings(**{"r": 2, "lora_alpha": 6, **settings})
    model = Network()
    add_lora(model, made)
    with ph.no_grad():
        for _, layer in adapters(model):
            layer.lora_B.weight.copy_(
                ph.tensor(RNG.normal(size=layer.lora_B.weight.shape), dtype="float32", device="numpy")
            )
    return model, made


def test_an_adapter_adds_a_scaled_product_of_thin_matrices() -> None:
    model, _ = adapted()
    layer = model.layers["up_proj"]
    x = RNG.normal(size=(3, 6)).astype(np.float32)
    w, b, low, high = (
        p.numpy().astype(np.float64)
        for p in (layer.base_layer.weight, layer.base_layer.bias, layer.lora_A.weight, layer.lora_B.weight)
    )
    expected = x @ w.T + b + 3 * (x @ low.T @ high.T)
    np.testing.assert_allclose(layer(ph.tensor(x, device="numpy")).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_only_adapters_are_trained_and_a_new_one_changes_nothing() -> None:
    ph.manual_seed(0)
    model = Network()
    x = ph.tensor(RNG.normal(size=(4, 6)).astype(np.float32), device="numpy")
    before = model(x).numpy()
    assert add_lora(model, LoraSettings(r=3)) == ["layers.up_proj", "layers.down_proj"]
    np.testing.assert_array_equal(model(x).numpy(), before)
    model(x).square().sum().backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert trained == {f"layers.{n}.lora_{m}.weight" for n in ("up_proj", "down_proj") for m in "AB"}
    assert trained == {name for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_merging_keeps_the_result_and_restores_ordinary_layers(dtype: str) -> None:
    model, _ = adapted()
    model.to(dtype=dtype)
    x = ph.tensor(RNG.normal(size=(4, 6)), dtype=dtype, device="numpy")
    before = model(x).to("float32").numpy()
    assert merge_lora(model) == ["layers.up_proj", "layers.down_proj"]
    assert not list(adapters(model))
    # Three layers whose weights are rounded once more; the terms are of the order of 1.
    tolerance = 1e-5 if dtype == "float32" else 0.25
    np.testing.assert_allclose(model(x).to("float32").numpy(), before, atol=tolerance * max(1, np.abs(before).max()))


def test_names_patterns_and_scales_select_layers_as_in_peft() -> None:
    named = LoraSettings(r=8, target_modules=("up_proj", "lm_head"), rank_pattern={"up_proj": 4}, use_rslora=True)
    assert [named.targets(p) for p in ("a.up_proj", "lm_head", "a.pup_proj", "up_proj.a")] == [True, True, False, False]
    assert (named.rank("a.up_proj"), named.rank("a.pup_proj")) == (4, 8)
    assert math.isclose(named.scale("a.up_proj"), 8 / 2)
    pattern = LoraSettings(target_modules=r".*layers\.[01]\..*", exclude_modules=("gate",), alpha_pattern={"^x.q": 2.0})
    assert [pattern.targets(p) for p in ("m.layers.1.q", "m.layers.2.q", "m.layers.0.gate")] == [True, False, False]
    assert (pattern.scale("x.q"), pattern.scale("x.k")) == (0.25, 1.0)


def test_a_saved_adapter_loads_into_another_model(tmp_path: Path) -> None:
    model, settings = adapted(target_modules=("up_proj",))
    save_adapter(model, tmp_path, settings)
    data = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (data["peft_type"], data["r"], data["target_modules"]) == ("LORA", 2, ["up_proj"])
    names = ph.serialize.load(tmp_path / "adapter_model.safetensors", device="numpy").keys()
    assert set(names) == {f"base_model.model.layers.up_proj.lora_{m}.weight" for m in "AB"}
    other = Network()
    other.load_state_dict({k.replace(".base_layer", ""): v for k, v in model.state_dict().items() if "lora_" not in k})
    assert load_adapter(other, tmp_path) == settings
    x = ph.tensor(RNG.normal(size=(4, 6)).astype(np.float32), device="numpy")
    np.testing.assert_array_equal(other(x).numpy(), model(x).numpy())


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"use_dora": True}, "use_dora is True"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"new_kind_of_adapter": 4}, "unknown settings new_kind_of_adapter"),
        ({"r": 0}, "ranks are"),
        ({"target_modules": "("}, "no regular expression"),
    ],
)
def test_settings_that_are_not_supported_are_named(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(IncompatibleFileError, match=problem):
        LoraSettings.from_json({"peft_type": "LORA", "r": 4, **settings})


def test_adapters_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    model, settings = adapted(target_modules=("up_proj",))
    save_adapter(model, tmp_path, settings)
    with pytest.raises(ValueError, match="the model has adapters"):
        load_adapter(model, tmp_path)
    with pytest.raises(ValueError, match="match no linear layer"):
        add_lora(Network(), LoraSettings(target_modules=("q_proj",)))
    for sizes, own in (((7, 8), "(8, 7)"), ((6, 9), "(9, 6)")):
        other = Network()
        other.layers["up_proj"] = Linear(*sizes, device="numpy")
        names = other.state_dict().keys()
        with pytest.raises(IncompatibleFileError, match=rf"layers.up_proj .* of \(8, 6\).*{re.escape(own)}"):
            load_adapter(other, tmp_path)
        assert other.state_dict().keys() == names
        assert all(parameter.requires_grad for parameter in other.parameters())
    write_json(tmp_path / "adapter_config.json", replace(settings, target_modules="all-linear").to_json())
    with pytest.raises(IncompatibleFileError, match=r"lacks an adapter of layers\.down_proj"):
        load_adapter(whole := Network(), tmp_path)
    assert not list(adapters(whole))
    (tmp_path / "adapter_config.json").write_text("[")
    with pytest.raises(CorruptFileError, match="not valid JSON"):
        load_adapter(Network(), tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no adapter_config.json; expected a folder that"):
        load_adapter(Network(), tmp_path)


def test_a_quantised_base_keeps_its_blocks() -> None:
    weight = RNG.normal(size=(32, 64)).astype(np.float32)
    layer = LoraLinear(QuantizedLinear.quantize(weight, "q8_0", device="numpy"), 2, 2.0)
    with ph.no_grad():
        layer.lora_B.weight.copy_(ph.tensor(RNG.normal(size=(32, 2)), dtype="float32", device="numpy"))
    x = ph.tensor(RNG.normal(size=(3, 64)).astype(np.float32), device="numpy")
    rounded = dequantize(quantize(weight, "q8_0"), "q8_0").astype(np.float64)
    low, high = (m.weight.numpy().astype(np.float64) for m in (layer.lora_A, layer.lora_B))
    expected = x.numpy() @ (rounded + 2 * high @ low).T
    # Each of 64 + 2 terms in float32 is off by at most that many roundings of the sum of magnitudes.
    near = 66 * 2.0**-24 * (np.abs(x.numpy()) @ (np.abs(rounded) + 2 * np.abs(high) @ np.abs(low)).T).max()
    np.testing.assert_allclose(layer(x).numpy(), expected, atol=near)
    np.testing.assert_allclose(layer.merged()(x).numpy(), expected, atol=near)
    layer(x).square().sum().backward()
    assert layer.lora_A.weight.grad is not None


def test_dropout_acts_on_the_input_of_the_adapter_only() -> None:
    layer = LoraLinear(Linear(64, 4, device="numpy"), 2, 1.0, dropout=0.5)
    x = ph.ones(1, 64, device="numpy")
    np.testing.assert_array_equal(layer(x).numpy(), layer.base_layer(x).numpy())
    with ph.no_grad():
        layer.lora_A.weight.fill_(1.0)
        layer.lora_B.weight.fill_(1.0)
    ph.manual_seed(3)
    kept = (layer(x) - layer.base_layer(x)).numpy()[0, 0] / (2 * 2)  # two rows of A; kept inputs are doubled
    assert kept == pytest.approx(round(float(kept)), abs=1e-4)
    assert 10 < kept < 54
    layer.eval()
    np.testing.assert_allclose((layer(x) - layer.base_layer(x)).numpy(), 128.0, rtol=1e-5)
