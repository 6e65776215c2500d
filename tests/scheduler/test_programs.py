"""Captured steps on backends that compile graphs: programs of claimed ops, launches of the others, and their memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from graph_backend import GraphBackend

import polyhal
from polyhal import nn, optim
from polyhal.hal.device import Device
from polyhal.models.mlp import MLP
from polyhal.nn import functional as F

X = np.random.default_rng(0).standard_normal((8, 6), np.float32)
Y = np.arange(8) % 3


def _train(device: Device | str, steps: int = 4) -> tuple[list[float], list[np.ndarray], Any]:
    """Train an MLP with dropout, AdamW and a learning rate that changes; return losses, parameters and the step."""
    polyhal.manual_seed(0)
    model = nn.Sequential(MLP((6, 16, 3)), nn.Dropout(0.25)).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    x, y = (polyhal.tensor(a, device=device) for a in (X, Y))

    @polyhal.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for i in range(steps):
        optimizer.param_groups[0]["lr"] = 1e-2 / (i + 1)
        losses.append(step(x, y).item())
    return losses, [p.numpy() for p in model.parameters()], step


def _equal(found: Any, expected: Any) -> None:
    """Compare two runs in float32, whose sums may be in another order."""
    for a, b in zip(found[:2], expected[:2], strict=True):
        for p, q in zip(a, b, strict=True):
            np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6)


def test_a_training_step_is_one_program_that_updates_in_place() -> None:
    backend = GraphBackend()
    found = _train(Device.opened("graphs", backend))
    _equal(found, _train("numpy"))
    (graph,) = backend.programs
    assert sum(d is not None for d in graph.donated) == 12, "4 parameters and 2 moments of each"
    assert backend.runs == 3, "the first of four calls runs op by op"
    assert "program numpy 1 of" in found[2].explain()


def test_captured_inputs_are_in_place_and_never_updated() -> None:
    backend = GraphBackend()
    device = Device.opened("graphs", backend)
    weight, total = (polyhal.ones((3, 3), device=device) for _ in range(2))

    @partial(polyhal.jit, warm_up=False)
    def step(x: Any) -> Any:
        y = polyhal.relu(x @ weight)
        total.add_(y)
        return y + 1

    for k in range(3):
        assert step(polyhal.full((3, 3), float(k), device=device)).tolist() == [[3.0 * k + 1] * 3] * 3
    (graph,) = backend.programs
    (captured,) = graph.captured
    readers = [n.op for n in graph.nodes if graph.inputs[captured] in n.operands]
    assert readers == ["matmul"], "neither the argument nor the sum, which each run changes"


def _ops(graph: Any) -> set[str]:
    return {node.op for node in graph.nodes}


def test_ops_that_are_not_claimed_run_between_programs() -> None:
    plain = _train("numpy")
    backend = GraphBackend({"relu", "maximum"})
    found = _train(Device.opened("graphs", backend))
    _equal(found, plain)
    assert len(backend.programs) == 2, "before and after the activation; its gradient is claimed"
    assert not any(_ops(g) & {"relu", "maximum"} for g in backend.programs)
    assert "program: this runtime has no maximum" in found[2].explain()


def test_an_op_is_decomposed_if_its_parts_are_claimed() -> None:
    plain = _train("numpy")
    backend = GraphBackend({"relu", "linear", "cross_entropy"})
    _equal(_train(Device.opened("graphs", backend)), plain)
    (graph,) = backend.programs
    assert {"matmul", "maximum"} & _ops(graph), "of linear and relu"


def test_tables_of_constants_are_made_outside_of_the_program() -> None:
    """Resampling decomposes into tables, which depend on nothing, and ops that the backend claims."""
    backend = GraphBackend({"resample_planes", "banded_planes", "banded_matmul", "resample_starts", "resample_weights"})
    resize = polyhal.jit(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear") * 2, warm_up=False)
    x = polyhal.tensor(np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4), device=Device.opened("graphs", backend))
    for _ in range(2):
        found = resize(x)
    np.testing.assert_allclose(
        found.numpy(), 2 * F.interpolate(x.to("numpy"), (6, 8), mode="bilinear").numpy(), rtol=1e-6
    )
    (graph,) = backend.programs
    assert {"where", "multiply"} <= _ops(graph)
    assert "1 run on graphs" in resize.explain()


def test_a_declined_graph_runs_by_launches() -> None:
    backend = GraphBackend(limit=5)
    found = _train(Device.opened("graphs", backend))
    _equal(found, _train("numpy"))
    assert not backend.programs
    assert "no programs on graphs: " in found[2].explain()
    assert "ops are more than 5" in found[2].explain()


def test_steps_chosen_at_random_agree_for_any_choice_of_claims() -> None:
    rng = np.random.default_rng(1)

    def function(x: Any, y: Any) -> Any:
        a = polyhal.exp(x.permute((1, 0)) * 0.5)
        b = a[1:4, ::2].reshape((-1,)) + 1
        c = polyhal.concat([b, y.reshape((-1,)).tanh()], axis=0)
        d = polyhal.sin(c[::3]) * c.sum()
        return a[2], d, polyhal.tril(a @ x), c.flip(0), y + 0

    x, y = X[:, ::2], X.T.copy()
    expected = [r.numpy() for r in function(polyhal.tensor(x), polyhal.tensor(y))]
    offered: set[str] = set()
    for trial in range(12):
        backend = GraphBackend({op for op in sorted(offered) if rng.random() < 0.4} if trial else ())
        device = Device.opened("graphs", backend)
        step = polyhal.jit(function, warm_up=False)
        args = polyhal.tensor(X, device=device)[:, ::2], polyhal.tensor(y, device=device)
        for _ in range(3):
            results = step(*args)
            for a, b in zip(results, expected, strict=True):
                np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-6)
        offered |= {op for g in backend.programs for op in _ops(g)}
    assert len(offered) > 8


def test_programs_of_two_devices_exchange_values() -> None:
    backends = GraphBackend(), GraphBackend({"tanh"})
    a, b = (Device.opened(f"graphs:{k}", backend) for k, backend in enumerate(backends))
    weights = [polyhal.tensor(np.eye(6, dtype=np.float32) * 2, device=d, requires_grad=True) for d in (a, b)]
    optimizer = optim.SGD(weights, lr=0.1)

    @polyhal.jit
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        hidden = polyhal.relu(x @ weights[0]).to(b)
        loss = (polyhal.tanh(hidden @ weights[1]) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.to(a)

    losses = [step(polyhal.tensor(X, device=a)).item() for _ in range(4)]
    assert all(backend.programs for backend in backends)
    w, v = (np.eye(6) * 2 for _ in range(2))
    for loss in losses:
        hidden = np.maximum(X @ w, 0)
        t = np.tanh(hidden @ v)
        assert np.isclose(loss, (t**2).sum(), rtol=1e-4)
        grad = 2 * t * (1 - t**2)
        w, v = w - 0.1 * X.T @ ((grad @ v.T) * (hidden > 0)), v - 0.1 * hidden.T @ grad
