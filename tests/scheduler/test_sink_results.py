"""Small results that depend on another device are scheduled after a device's own work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import nn
from polyhal.hal.compile.ir.graph import Node
from polyhal.hal.compile.scheduler.cross_device import JOIN, PEER_COPY, RECEIVE
from polyhal.hal.compile.scheduler.executable import Executable
from polyhal.hal.device import Device
from polyhal.nn import functional as F
from polyhal.parallel import DataParallel

from .worker_devices import executable_of, numpy_like, sim_peers

pytestmark = pytest.mark.usefixtures("workers_under_a_limit")
PAIRS: dict[str, Callable[[], list[Device]]] = {
    "through the host": lambda: [Device("numpy"), numpy_like()],
    "peers": sim_peers,
}


def after_waits(executable: Executable, device: Device) -> list[set[str]]:
    """Return for each transfer that a device receives the ops that it runs afterwards, without joins."""
    graph = executable.graph
    own = [n for n in graph.nodes if n.device is device and not graph.is_view(n) and n.op is not PEER_COPY]

    def receives(node: Node) -> bool:
        if node.op is not JOIN:
            return node.op is RECEIVE
        copy, start = graph.producer(node.value(0)), graph.producer(node.value(1))
        return copy is not None and copy.op is PEER_COPY and start is not None and start.outputs[0] in used

    used = {graph.root(v) for n in own if n.op is not JOIN for v in n.reads}
    return [{n.op.name for n in own[k + 1 :] if n.op is not JOIN} for k, node in enumerate(own) if receives(node)]


@pytest.mark.parametrize("devices", [pytest.param(make, id=name) for name, make in PAIRS.items()])
def test_the_loss_of_a_data_parallel_step_is_combined_last(devices: Callable[[], Sequence[Device]]) -> None:
    """The second device does not wait for any transfer: it computes the gradient of its part of the mean itself."""
    ph.manual_seed(0)
    pair = list(devices())
    plain = nn.Sequential(nn.Linear(6, 8, device="numpy"), nn.Tanh(), nn.Linear(8, 3, device="numpy"))
    model = DataParallel(plain, pair, bucket_bytes=64)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((7, 6)).astype(np.float32), rng.standard_normal((7, 3)).astype(np.float32)
    weights = [p.detach().numpy() for p in plain.parameters()]

    def train(xs: Any, ys: Any) -> ph.Tensor:
        model.zero_grad()
        loss: ph.Tensor = model.map(lambda m, x, y: F.mse_loss(m(x), y), xs, ys)
        (loss * 3).backward()
        return loss.detach()

    step = ph.jit(train, warm_up=False)
    loss = step(*model.shard(x, y))
    executable = executable_of(step)
    (after,) = after_waits(executable, pair[0])
    assert after <= {"add", "multiply", "fused_elementwise"}, "more than the weighted sum"
    assert after_waits(executable, pair[1]) == []
    single = [ph.tensor(w, device="numpy", requires_grad=True) for w in weights]
    hidden = F.linear(ph.tensor(x, device="numpy"), single[0], single[1]).tanh()
    expected = F.mse_loss(F.linear(hidden, single[2], single[3]), ph.tensor(y, device="numpy"))
    (expected * 3).backward()
    np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-6)
    for p, q in zip(plain.parameters(), single, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_operands_of_updates_are_not_sunk() -> None:
    """A small received value that an update reads is scheduled before the update; a result without consumers after it."""
    a, b = Device("numpy"), numpy_like()
    state = ph.zeros((4,), device=a)

    def step(x: ph.Tensor, y: ph.Tensor) -> tuple[ph.Tensor, ph.Tensor]:
        reported = y.sum().to(a) + state.sum()
        state.add_(y.mean().to(a))
        return reported, x.exp().sum()

    captured = ph.jit(step, warm_up=False)
    for k in range(3):
        reported, own = captured(ph.ones((4,), device=a), ph.full((4,), 2.0, device=b))
        assert reported.item() == 8 + 8 * k, "the state before the update"
        np.testing.assert_allclose(own.item(), 4 * np.e, rtol=1e-6)
    assert state.tolist() == [6.0] * 4
