"""Named tuples as results: eager, captured, saved, mapped, and on PyTorch's device."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal as ph

CALLS: dict[str, Any] = {
    "topk": lambda m, x: m.topk(x, 2),
    "kthvalue": lambda m, x: m.kthvalue(x, 2),
    "median": lambda m, x: m.median(x, 0),
    "nanmedian": lambda m, x: m.nanmedian(x, 1),
    "mode": lambda m, x: m.mode(x),
    "cummax": lambda m, x: m.cummax(x, 0),
    "cummin": lambda m, x: m.cummin(x, 1),
    "aminmax": lambda m, x: m.aminmax(x, dim=0),
    "frexp": lambda m, x: m.frexp(x),
    "histogram": lambda m, x: m.histogram(x, 3),
    "slogdet": lambda m, x: m.slogdet(x),
    "geqrf": lambda m, x: m.geqrf(x),
}
"""Functions of both libraries whose results have names in PyTorch."""
VALUES = np.float32([[3, 1, 2], [0, 5, 1], [6, 1.5, 4]])


def _fields(result: Any) -> list[str]:
    """Return the field names of PyTorch's result, in order."""
    return [n for n in dir(result) if not n.startswith("_") and hasattr(getattr(result, n), "dtype")]


@pytest.fixture(autouse=True)
def _on_the_host_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "warn")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_fields_have_pytorchs_names_and_values(device: ph.Device, name: str) -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = CALLS[name](ph, ph.tensor(VALUES, device=device)), CALLS[name](torch, torch.tensor(VALUES))
    assert sorted(mine._fields) == sorted(_fields(theirs))
    for field in mine._fields:
        np.testing.assert_allclose(getattr(mine, field).numpy(), getattr(theirs, field).numpy(), rtol=1e-5, atol=1e-6)
    assert isinstance(pickle.loads(pickle.dumps(mine)), type(mine))


def test_captured_saved_and_mapped_functions_keep_names(device: ph.Device, tmp_path: Path) -> None:
    x = ph.tensor(VALUES, device=device)
    step = ph.jit(lambda x: {"top": x.topk(2), "running": x.cummax(0)})
    for _ in range(3):
        results = step(x)
        assert results["top"].indices.tolist() == x.topk(2).indices.tolist()
        assert results["running"].values.tolist() == x.cummax(0).values.tolist()
    ph.save_graph(step, tmp_path / "step")
    loaded = ph.load_graph(tmp_path / "step", device)(x)
    assert loaded["top"][1].tolist() == x.topk(2).indices.tolist()
    assert ph.vmap(lambda row: row.topk(1))(x).values.tolist() == x.topk(1).values.tolist()


def test_gradients_reach_the_operand(device: ph.Device) -> None:
    x = ph.tensor(VALUES, device=device, requires_grad=True)
    (x.topk(1).values * 2 + x.median(1, True).values).sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.float32([[2, 0, 1], [0, 2, 1], [2, 0, 1]]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["topk", "cummax", "median", "aminmax", "frexp", "kthvalue", "mode"])
def test_pytorchs_device_returns_pytorchs_names(name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("polyhal.torch")
    on_device, on_host = (CALLS[name](torch, torch.tensor(VALUES, device=d)) for d in ("polyhal", "cpu"))
    for field in _fields(on_host):
        np.testing.assert_allclose(getattr(on_device, field).cpu().numpy(), getattr(on_host, field).numpy())
