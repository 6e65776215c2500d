"""Lazy layers, hooks around state dicts, weights computed by hooks, and replaced layers, compared with PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import polyhal
from polyhal import nn, optim
from polyhal.func import functional_call, replace_all_batch_norm_modules_, stack_module_state
from polyhal.hal.system.discovery.registry import registry
from polyhal.nn.state import StateDictError
from polyhal.nn.utils import parametrizations, parametrize


@pytest.fixture(autouse=True)
def _on_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry(), "_default", polyhal.Device("numpy"))
    torch.manual_seed(0)
    polyhal.manual_seed(0)


def ours(state: dict[str, Any]) -> dict[str, np.ndarray]:
    return {k: v.detach().numpy() for k, v in state.items()}


def close(a: Any, b: Any) -> None:
    """Elements are sums of up to 60 products and at most 10 in magnitude: errors are some units of that."""
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-5)


# --- lazy layers ----------------------------------------------------------------------------------------------------

LAZY = [
    ("LazyLinear", (3,), {}, (2, 5)),
    ("LazyLinear", (3, False), {}, (2, 5)),
    ("LazyConv1d", (4, 3), {}, (2, 5, 9)),
    ("LazyConv2d", (4, 3), {"groups": 2}, (2, 6, 9, 9)),
    ("LazyConvTranspose2d", (4, 3), {"groups": 2}, (2, 6, 9, 9)),
    ("LazyBatchNorm2d", (), {}, (2, 6, 9, 9)),
    ("LazyBatchNorm1d", (), {"affine": False}, (2, 6)),
    ("LazyInstanceNorm2d", (), {"affine": True}, (2, 6, 9, 9)),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), LAZY)
def test_a_lazy_layer_before_and_after_its_first_call(name: str, args: Any, kwargs: Any, shape: Any) -> None:
    layer, theirs = getattr(nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs)
    assert layer.has_uninitialized_params() == theirs.has_uninitialized_params()
    assert {k: type(v).__name__ for k, v in layer.state_dict().items() if "Uninit" in type(v).__name__} == {
        k: type(v).__name__ for k, v in theirs.state_dict().items() if "Uninit" in type(v).__name__
    }
    assert list(layer.state_dict()) == list(theirs.state_dict())
    before = dict(layer.named_parameters())
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    layer(polyhal.tensor(x))
    theirs(torch.tensor(x))
    assert type(layer).__name__ == type(theirs).__name__ == name.removeprefix("Lazy")
    assert {k: v.shape for k, v in layer.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    after = dict(layer.named_parameters())
    assert all(after[k] is p and type(p) is nn.Parameter for k, p in before.items())
    layer.load_state_dict(ours(theirs.state_dict()))
    close(layer.eval()(polyhal.tensor(x)), theirs.eval()(torch.tensor(x)))


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), LAZY)
def test_a_state_dict_materializes_a_lazy_layer(name: str, args: Any, kwargs: Any, shape: Any) -> None:
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    theirs(torch.tensor(x))
    layer = getattr(nn, name)(*args, **kwargs)
    layer.load_state_dict(ours(theirs.state_dict()))
    assert not layer.has_uninitialized_params() if hasattr(layer, "has_uninitialized_params") else True
    close(layer.eval()(polyhal.tensor(x)), theirs.eval()(torch.tensor(x)))


def test_a_lazy_model_before_its_first_call() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
    assert repr(model[0]) == repr(torch.nn.LazyLinear(3)) == "LazyLinear(in_features=0, out_features=3, bias=True)"
    with pytest.raises(ValueError, match="a parameter of a lazy layer has no shape yet; call the model once before"):
        optim.SGD(model.parameters(), lr=0.1)
    for use in (lambda: model[0].weight * 2, lambda: model[0].weight.shape, lambda: model[0].weight.numpy()):
        with pytest.raises(RuntimeError, match="has no shape and no elements yet; call the model once"):
            use()
    assert model.count_parameters() == 0
    nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2)).load_state_dict(model.state_dict())
    model.double()[0].weight.requires_grad_(False)
    assert model(polyhal.ones((2, 5), dtype=polyhal.float64)).dtype is polyhal.float64
    assert not model[0].weight.requires_grad
    assert model[0].bias.requires_grad
    optim.SGD(model.parameters(), lr=0.1)


def test_initial_values_do_not_depend_on_when_a_layer_is_made() -> None:
    polyhal.manual_seed(3)
    lazy = nn.LazyLinear(3)
    lazy(polyhal.ones((1, 4)))
    polyhal.manual_seed(3)
    assert lazy.weight.tolist() == nn.Linear(4, 3).weight.tolist()


def test_an_uninitialized_parameter_of_ones_own() -> None:
    p = nn.UninitializedParameter(dtype="float64")
    p.materialize((2, 3))
    assert type(p) is nn.Parameter
    assert (p.shape, p.dtype, p.requires_grad) == ((2, 3), polyhal.float64, True)
    b = nn.UninitializedBuffer()
    b.materialize((2,))
    assert type(b) is polyhal.Tensor
    assert not b.requires_grad


# --- state ----------------------------------------------------------------------------------------------------------


def hooked(module: Any, log: list[Any]) -> Any:
    """Register equal hooks on a model of Polyhal or of PyTorch."""

    def after_read(m: Any, state: Any, prefix: str, metadata: Any) -> None:
        log.append(("read", prefix, len(state)))
        if not prefix:
            state["extra"] = state.pop("1.bias")

    def before_load(
        m: Any, state: Any, prefix: str, meta: Any, strict: bool, missing: Any, unexpected: Any, errors: Any
    ) -> None:
        log.append(("load", prefix, strict, sorted(state)))
        if not prefix and "extra" in state:
            state["1.bias"] = state.pop("extra")

    module[1].register_state_dict_pre_hook(lambda m, prefix, keep: log.append(("reading", prefix, keep)))
    module.register_state_dict_post_hook(after_read)
    module[0].register_state_dict_post_hook(after_read)
    module.register_load_state_dict_pre_hook(before_load)
    module.register_load_state_dict_post_hook(lambda m, keys: log.append(("loaded", [*keys.missing_keys])))
    module[0].register_load_state_dict_post_hook(lambda m, keys: log.append(("loaded 0", [*keys.missing_keys])))
    return module


def test_hooks_around_state_dicts_are_called_as_in_pytorch() -> None:
    logs: list[list[Any]] = [[], []]
    models = [
        hooked(lib.Sequential(lib.Linear(2, 3), lib.Linear(3, 1)), log)
        for lib, log in zip((nn, torch.nn), logs, strict=True)
    ]
    states = [m.state_dict() for m in models]
    assert [sorted(s) for s in states] == [["0.bias", "0.weight", "1.weight", "extra"]] * 2
    before = dict(states[0])
    for model, state in zip(models, states, strict=True):
        model.load_state_dict(state)
    assert logs[0] == logs[1]
    assert states[0].keys() == before.keys(), "the caller's dictionary is not changed"


def test_hooks_after_loading_change_the_missing_keys() -> None:
    for lib, error in ((nn, StateDictError), (torch.nn, RuntimeError)):
        model = lib.Linear(2, 3)
        state = {"weight": model.state_dict()["weight"], "other": model.state_dict()["bias"]}
        handle = model.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
        with pytest.raises(error, match="other"):
            model.load_state_dict(state)
        del state["other"]
        model.load_state_dict(state)
        handle.remove()
        with pytest.raises(error, match="bias"):
            model.load_state_dict(state)


def test_a_hook_may_refuse_a_state() -> None:
    model = nn.Linear(2, 3)
    old = model.weight.tolist()
    model.register_load_state_dict_pre_hook(lambda *args: args[-1].append("made by another program"))
    with pytest.raises(StateDictError, match="made by another program"):
        model.load_state_dict(nn.Linear(2, 3).state_dict())
    assert model.weight.tolist() == old


def test_extra_state_is_saved_and_loaded(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def get_extra_state(self) -> Any:
            return {"calls": self.calls}

        def set_extra_state(self, state: Any) -> None:
            self.calls = state["calls"]

    model = nn.Sequential(nn.Linear(1, 1), Counting())
    model[1].calls = 7
    assert model.state_dict()["1._extra_state"] == {"calls": 7}
    polyhal.save(model.state_dict(), tmp_path / "state")
    other = nn.Sequential(nn.Linear(1, 1), Counting())
    other.load_state_dict(polyhal.load(tmp_path / "state", "numpy"))
    assert other[1].calls == 7


def test_to_empty_keeps_members_and_forgets_elements() -> None:
    model = nn.BatchNorm1d(3).to(dtype="float64")
    weight = model.weight
    assert model.to_empty(device="numpy:contiguous_only") is model
    assert model.weight is weight
    assert {x.device.name for x in (*model.parameters(), *model.buffers())} == {"numpy:contiguous_only"}
    assert (weight.shape, weight.dtype, weight.requires_grad) == ((3,), polyhal.float64, True)
    model.load_state_dict(nn.BatchNorm1d(3).state_dict())
    lazy = nn.LazyLinear(2).to_empty(device="numpy:no_f64")
    assert lazy.weight.device.name == "numpy:no_f64"


# --- computed weights -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of:FutureWarning")
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_by_hook(dim: int | None) -> None:
    theirs = torch.nn.utils.weight_norm(torch.nn.Linear(4, 3), dim=dim)
    layer = nn.utils.weight_norm(nn.Linear(4, 3), dim=dim)
    assert list(layer.state_dict()) == list(theirs.state_dict())
    layer.load_state_dict(ours(theirs.state_dict()))
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    a, b = layer(polyhal.tensor(x)), theirs(torch.tensor(x))
    close(a, b)
    a.square().sum().backward()
    b.square().sum().backward()
    close(layer.weight_g.grad, theirs.weight_g.grad)
    close(layer.weight_v.grad, theirs.weight_v.grad)
    with pytest.raises(RuntimeError, match="computed so already"):
        nn.utils.weight_norm(layer)
    nn.utils.remove_weight_norm(layer)
    torch.nn.utils.remove_weight_norm(theirs)
    assert sorted(layer.state_dict()) == sorted(theirs.state_dict())
    close(layer.weight, theirs.weight)
    assert not layer._hooks
    with pytest.raises(ValueError, match="is not computed so"):
        nn.utils.remove_weight_norm(layer)


@pytest.mark.parametrize("kind", ["Linear", "ConvTranspose1d"])
def test_spectral_norm_by_hook(kind: str) -> None:
    args = (4, 3) if kind == "Linear" else (4, 3, 2)
    theirs = torch.nn.utils.spectral_norm(getattr(torch.nn, kind)(*args), n_power_iterations=2)
    layer = nn.utils.spectral_norm(getattr(nn, kind)(*args), n_power_iterations=2)
    assert sorted(layer.state_dict()) == sorted(theirs.state_dict())
    layer.load_state_dict(ours(theirs.state_dict()))
    x = np.random.default_rng(0).normal(size=(5, 4) if kind == "Linear" else (2, 4, 6)).astype(np.float32)
    for _ in range(2):
        a, b = layer(polyhal.tensor(x)), theirs(torch.tensor(x))
        close(a, b)
    a.square().sum().backward()
    b.square().sum().backward()
    close(layer.weight_orig.grad, theirs.weight_orig.grad)
    close(layer.weight_u, theirs.weight_u)
    layer.eval(), theirs.eval()
    close(layer(polyhal.tensor(x)), theirs(torch.tensor(x)))
    nn.utils.remove_spectral_norm(layer)
    torch.nn.utils.remove_spectral_norm(theirs)
    assert sorted(layer.state_dict()) == sorted(theirs.state_dict())
    close(layer.weight, theirs.weight)


def test_cached_parametrizations_are_computed_once() -> None:
    class Doubled(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            Doubled.calls += 1
            return x * 2

        def right_inverse(self, x: Any) -> Any:
            return x / 2

    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Doubled())
    Doubled.calls = 0
    with parametrize.cached():
        first = layer.weight
        with parametrize.cached():
            assert layer.weight is first
        assert layer.weight is first
        assert Doubled.calls == 1
        layer.weight = polyhal.ones((2, 2))
        assert layer.weight.tolist() == [[1, 1], [1, 1]]
        (layer.weight.sum() + layer.weight.sum()).backward()
    assert layer.weight is not layer.weight
    assert layer.parametrizations.weight.original.grad.tolist() == [[4, 4], [4, 4]]
    assert parametrizations.weight_norm(nn.Linear(2, 2)).weight.shape == (2, 2)


def test_the_older_name_of_clipping() -> None:
    p = nn.Parameter(polyhal.tensor([3.0, 4.0]))
    (p * p.detach()).sum().backward()
    assert nn.utils.clip_grad_norm([p], 1.0).item() == 5.0
    assert nn.utils.summary is polyhal.summary


def test_an_infinite_running_mean_remains_infinite() -> None:
    norms = nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2)
    for x in ([[1.0, 0.0], [2.0, np.inf]], [[1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0], [2.0, np.inf]]):
        norms[0](polyhal.tensor(x)), norms[1](torch.tensor(x))
    close(norms[0].running_mean, norms[1].running_mean)
    assert norms[0].running_mean.tolist()[1] == np.inf


def test_batch_norms_without_running_statistics() -> None:
    model = replace_all_batch_norm_modules_(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    theirs = torch.func.replace_all_batch_norm_modules_(
        torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    )
    assert list(model.state_dict()) == list(theirs.state_dict())
    model.load_state_dict(ours(theirs.state_dict()))
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    close(model(polyhal.tensor(x[0])), theirs(torch.tensor(x[0])))
    params, buffers = stack_module_state([model, model])
    out = polyhal.vmap(lambda p, x: functional_call(model, p, x))(params, polyhal.tensor(x))
    assert not buffers
    close(out[1], theirs(torch.tensor(x[1])))


# --- whole models ---------------------------------------------------------------------------------------------------


def test_layers_that_were_replaced_are_saved(tmp_path: Path) -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16)
    model.linear2 = nn.Sequential(nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 8))
    model.dropout = nn.Identity()
    model.norm2 = nn.RMSNorm(8)
    model.add_module("tied", model.linear1)
    del model.dropout1
    model.dropout1 = nn.Dropout(0.5)
    model.self_attn.out_proj = nn.Linear(8, 8, bias=False)
    polyhal.save(model, tmp_path / "model")
    other = polyhal.load(tmp_path / "model", "numpy")
    assert repr(other) == repr(model)
    assert other.tied is other.linear1
    x = polyhal.randn(2, 3, 8)
    assert other.eval()(x).tolist() == model.eval()(x).tolist()


def test_layers_that_were_removed_stay_removed(tmp_path: Path) -> None:
    model = nn.Transformer(8, 2, 1, 1, 16)
    del model.encoder.norm
    model.encoder.norm = None
    polyhal.save(model, tmp_path / "model")
    assert repr(polyhal.load(tmp_path / "model", "numpy")) == repr(model)


def test_a_replaced_layer_needs_its_class(tmp_path: Path) -> None:
    class Own(nn.Linear):
        pass

    model = nn.TransformerEncoderLayer(8, 2, 16)
    model.linear1 = Own(8, 16)
    polyhal.save(model, tmp_path / "model")
    with pytest.raises(polyhal.errors.IncompatibleFileError, match="classes=\\[Own\\]"):
        polyhal.load(tmp_path / "model", "numpy")
    assert isinstance(polyhal.load(tmp_path / "model", "numpy", classes=[Own]).linear1, Own)
    parametrizations.weight_norm(model.linear2)
    with pytest.raises(TypeError, match="linear2 became a ParametrizedLinear after it was made"):
        polyhal.save(model, tmp_path / "model")
