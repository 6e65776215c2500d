"""Captured steps saved and loaded: the same results as from the program that made them, on any device."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import TEST_DEVICES

import polyhal as ph
from polyhal.graphs import saving
from polyhal.hal.errors import CaptureError, CorruptFileError, IncompatibleFileError, ShapeError
from polyhal.serialize import load, save


def ones(*shape: int) -> ph.Tensor:
    return ph.ones(shape, device="numpy")


def batch(device: ph.Device, seed: int) -> tuple[ph.Tensor, ph.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((8, 6)).astype(np.float32)
    return ph.Tensor(x, device=device), ph.Tensor(rng.integers(0, 3, 8), device=device)


def training(device: ph.Device) -> tuple[Any, Any]:
    """A captured step with dropout and AdamW, which has run a few times; and the model."""
    ph.manual_seed(3)
    nn = ph.nn
    model = nn.Sequential(nn.Linear(6, 16, device=device), nn.Dropout(0.3), nn.Linear(16, 3, device=device))
    optimizer = ph.optim.AdamW(model.parameters(), lr=1e-2)

    @ph.jit
    def step(x: ph.Tensor, y: ph.Tensor) -> dict[str, Any]:
        optimizer.zero_grad()
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "more": (logits, "text", 3)}

    for i in range(2):
        step(*batch(device, i))
    return step, model


WITH_KERNELS = [name for name in TEST_DEVICES if name != "numpy:contiguous_only"]
"""A whole training step of core methods has thousands of them."""


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_training_goes_on_bit_by_bit(name: str, tmp_path: Path) -> None:
    device = ph.Device(name)
    step, model = training(device)
    loaded = ph.load_graph(ph.save_graph(step, tmp_path / "step.safetensors"), device)
    for i in range(2, 5):
        ours, theirs = step(*batch(device, i)), loaded(*batch(device, i))
        assert theirs["more"][1:] == ("text", 3)
        assert np.array_equal(ours["loss"].numpy(), theirs["loss"].numpy())
        assert np.array_equal(ours["more"][0].numpy(), theirs["more"][0].numpy())
    for name, p in model.named_parameters():
        assert np.array_equal(p.numpy(), loaded.state[name].numpy()), name
    assert "0.weight.exp_avg_sq" in loaded.state


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_another_device_continues_alike(name: str, tmp_path: Path) -> None:
    device = ph.Device(name)
    step, _ = training(ph.Device("numpy"))
    loaded = ph.load_graph(ph.save_graph(step, tmp_path / "step"), device)
    again = ph.load_graph(ph.save_graph(loaded, tmp_path / "again.safetensors"), device)
    for i in range(2, 4):
        expected = step(*batch(ph.Device("numpy"), i))["loss"].numpy()
        # The bits of the dropout masks are the same everywhere, so that only rounding differs.
        np.testing.assert_allclose(loaded(*batch(device, i))["loss"].numpy(), expected, rtol=2e-5)
        np.testing.assert_allclose(again(*batch(device, i))["loss"].numpy(), expected, rtol=2e-5)


def test_numbers_are_set(numpy_device: ph.Device, tmp_path: Path) -> None:
    step, _ = training(numpy_device)
    loaded = ph.load_graph(ph.save_graph(step, tmp_path / "step"), numpy_device)
    assert {"lr", "beta1", "beta2", "eps", "weight_decay"} <= set(loaded.numbers)
    before = loaded.state["0.weight"].numpy()
    loaded.numbers.update(lr=0)
    loaded(*batch(numpy_device, 9))
    assert np.array_equal(loaded.state["0.weight"].numpy(), before)
    with pytest.raises(KeyError, match=r"it has .*lr"):
        loaded.numbers["rate"] = 1.0
    with pytest.raises(TypeError, match="lr is set to 'fast'; expected a number of type float"):
        loaded.numbers["lr"] = "fast"


def test_blocks_views_and_strided_state(device: ph.Device, tmp_path: Path) -> None:
    """State that is read through strides keeps its layout in the loaded step, and is changed there."""
    table = ph.Tensor(np.arange(24, dtype=np.float32).reshape(4, 6), device=device)
    odd = table[:, 1::2]
    count = ph.zeros((3,), device=device)
    with ph.capture() as block:
        out = odd.sum(axis=0) + count
        count.add_(1.0)
        scaled = out * 2.0
    loaded = ph.load_graph(ph.save_graph(block, tmp_path / "block"), device)
    for _ in range(2):
        block.replay()
        ours = loaded()
        assert any(np.array_equal(x.numpy(), out.numpy()) for x in ours)
        assert any(np.array_equal(x.numpy(), scaled.numpy()) for x in ours)


def test_arguments_are_checked(numpy_device: ph.Device, tmp_path: Path) -> None:
    step = ph.jit(lambda x, rate: x.T * rate, warm_up=False)
    step(ones(2, 3), 2.0)
    loaded = ph.load_graph(ph.save_graph(step, tmp_path / "f"), numpy_device)
    assert loaded.numbers["rate"] == 2.0
    assert loaded(np.ones((2, 3), np.float32)).shape == (3, 2)
    given = ph.Tensor(np.arange(6, dtype=np.float32).reshape(3, 2), device=numpy_device)
    assert np.array_equal(loaded(given.T), given.numpy() * 2)
    with pytest.raises(ShapeError, match=r"argument 0 is float32\[3, 3\] on numpy; expected float32\[2, 3\] on numpy"):
        loaded(ones(3, 3))
    with pytest.raises(ShapeError, match="got 2 arguments; expected the 1"):
        loaded(ones(2, 3), ones(2, 3))
    with pytest.raises(CaptureError, match="in a capture"), ph.capture():
        loaded(ones(2, 3))


def test_what_cannot_be_saved(numpy_device: ph.Device, tmp_path: Path) -> None:
    fresh = ph.jit(lambda x: x + 1)
    with pytest.raises(CaptureError, match=r"0 steps .* call it twice"):
        ph.save_graph(fresh, tmp_path / "f")
    for n in (1, 2, 3, 4):
        fresh(ones(n))
    with pytest.raises(CaptureError, match=r"3 steps .* name one of its \.steps"):
        ph.save_graph(fresh, tmp_path / "f")
    ph.save_graph(fresh.steps[1], tmp_path / "f")
    assert np.array_equal(ph.load_graph(tmp_path / "f", numpy_device)(ones(3)), 2 * np.ones(3))
    odd = ph.jit(lambda x: (x, slice(3)), warm_up=False)
    odd(ones(2))
    with pytest.raises(TypeError, match="returns a slice"):
        ph.save_graph(odd, tmp_path / "odd")
    assert not (tmp_path / "odd").exists()


@pytest.fixture
def saved(numpy_device: ph.Device, tmp_path: Path) -> dict[str, Any]:
    """The data of a small file, to be altered."""
    weight = ph.Tensor([1.0, 2.0], device=numpy_device)
    step = ph.jit(lambda x: (x * weight).sum(axis=0), warm_up=False)
    step(ones(4, 2))
    data: dict[str, Any] = load(ph.save_graph(step, tmp_path / "ok"), numpy_device)
    return data


def _altered(change: str) -> Any:
    """A change of the data, as a Python statement about `d` and the graph `g`."""
    return compile(change, "<change>", "exec")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("g['nodes'][0]['op'] = 'system'", r"node 0 \(system, %2\) .* there is no op 'system'"),
        ("g['nodes'][1]['params']['axis'] = [5]", r"node 1 \(sum, %3\) .* axis 5 is out of range"),
        ("g['nodes'][1]['params'] = {'axis': [0]}", r"node 1 .* with parameters \['axis'\]"),
        ("g['nodes'][0]['inputs'][0] = {'value': 7}", "node 0 .* %7 is not made"),
        ("g['nodes'][0]['inputs'][0] = 'x'", "node 0 .* an operand is 'x'"),
        ("g['nodes'][0]['outputs'][0]['shape'] = [9]", r"multiply gives float32\[4, 2\]; expected float32\[9\]"),
        ("del g['nodes'][0]['place']", r"node 0 \(multiply\) has no place"),
        ("d['numbers'] = 3", "numbers is a int"),
        ("d['state'] = 3", "the state is no dictionary"),
        ("g['nodes'][0]['place'] = 4", "node 0 .* IndexError"),
        ("g['places'][0]['precision'] = 'none'", "the places .* precision='none'"),
        ("g['outputs'] = [99]", "the results .* %99 is not made"),
        ("g['updates'] = [[1, 2]]", "the update of %1"),
        ("del g['nodes']", "the list of nodes .* KeyError"),
        ("g['nodes'][0] = 3", "node 0 .* TypeError"),
        ("d['sources'][0] = {'state': 'gone'}", "input %0 .* comes from {'state': 'gone'}"),
        ("d['sources'].pop()", "1 sources; expected one for each of 2 inputs"),
        ("d['state'] = {n: x[:1] for n, x in d['state'].items()}", r"captured is float32\[1\]; expected float32\[2\]"),
        ("d['numbers'] = [{'operation': 'eval', 'operands': []}]", "number 0 .* operation 'eval'"),
        ("d['numbers'] = [{'name': 'x', 'value': 'y'}]", "number 0 .* 'y'"),
        ("d['streams'] = [{'state': {}, 'blocks': 1}]", "a random state is"),
        ("d['results'] = {'tensor': 5}", "a result is {'tensor': 5}"),
        ("del d['results']", "lacks results"),
    ],
)
def test_altered_files_are_refused(saved: dict[str, Any], tmp_path: Path, change: str, problem: str) -> None:
    data = {**saved, "graph": copy.deepcopy(saved["graph"])}
    exec(_altered(change), {"d": data, "g": data["graph"]})
    with pytest.raises(CorruptFileError, match=problem):
        ph.load_graph(save(data, tmp_path / "altered"), "numpy")


def test_other_files_are_refused(saved: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(IncompatibleFileError, match="holds no graph"):
        ph.load_graph(save({"x": ones(2)}, tmp_path / "other"))
    with pytest.raises(IncompatibleFileError, match=f"schema 99; expected schema {saving.SCHEMA}"):
        ph.load_graph(save({**saved, "schema": 99}, tmp_path / "newer"))
    (tmp_path / "ok" / "state.json").write_text(json.dumps({"schema": 1}))
    with pytest.raises(CorruptFileError):
        ph.load_graph(tmp_path / "ok")


def test_accumulated_gradients_are_state(device: ph.Device, tmp_path: Path) -> None:
    layer = ph.nn.Linear(3, 2, device=device)

    @ph.jit
    def step(x: ph.Tensor) -> None:
        layer(x).sum().backward()

    x = ph.ones((4, 3), device=device)
    for _ in range(3):
        step(x)
    loaded = ph.load_graph(ph.save_graph(step, tmp_path / "step"), device)
    assert loaded(x) is None
    assert np.array_equal(loaded.state["weight.grad"].numpy(), np.full((2, 3), 16.0))
