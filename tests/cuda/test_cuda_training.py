"""Captured training steps on the CUDA backend: the numbers of the OpenCL backend with equal kernels, and few driver calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from emulated_backend import Emulation
from emulated_processor import Processor

import polyhal as ph
from polyhal import nn, optim
from polyhal.backends.opencl.backend import OpenCLBackend
from polyhal.hal.device import Device
from polyhal.models import GPT, GPTConfig

_CALLS_OF_A_REPLAY = {
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuGraphLaunch",
    "cuGraphExecKernelNodeSetParams_v2",
}
_STEPS = 5
"""Enough for a recorded step, its check and replays."""
_VOCABULARY = 17


@dataclass(frozen=True)
class Task:
    """A model, its loss and its batches."""

    make: Callable[[], Any]
    loss: Callable[[Any, Any, Any], Any]
    batches: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)
    )


def _classified(model: Any, x: Any, y: Any) -> Any:
    return ph.nn.functional.cross_entropy(model(x), y)


def _tokens(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.cumsum(rng.integers(0, 4, (2, 17)), axis=1) % _VOCABULARY
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


TASKS = {
    "MLP": Task(
        lambda: nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 5)),
        _classified,
        lambda rng: (rng.standard_normal((8, 12)).astype(np.float32), rng.integers(0, 5, 8)),
    ),
    "CNN": Task(
        _cnn, _classified, lambda rng: (rng.standard_normal((8, 1, 8, 8)).astype(np.float32), rng.integers(0, 5, 8))
    ),
    "GPT": Task(
        lambda: GPT(GPTConfig(vocab_size=_VOCABULARY, block_size=16, n_layer=1, n_head=2, n_embd=16)),
        lambda model, x, y: model.loss(x, y),
        _tokens,
    ),
}
_SLOW = [pytest.param(name, marks=() if name == "MLP" else pytest.mark.slow) for name in TASKS]


@dataclass
class Training:
    """A captured training step and its model."""

    model: Any
    step: Callable[[Any, Any], Any]
    batches: Iterator[Any]

    def run(self) -> float:
        """Train on the next batch. Returns the loss."""
        return float(self.step(*next(self.batches)))


def training(task: Task, device: Device) -> Training:
    """Return a training whose learning rate changes in every step."""
    ph.manual_seed(0)
    model = task.make().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=0.01)

    @ph.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = task.loss(model, x, y)
        loss.backward()
        optimizer.step()
        return loss

    def batches() -> Iterator[Any]:
        rng = np.random.default_rng(0)
        for i in range(_STEPS + 1):
            optimizer.param_groups[0]["lr"] = 0.01 / (i + 1)
            yield [ph.tensor(a, device=device) for a in task.batches(rng)]

    return Training(model, step, batches())


@pytest.fixture
def _fixed_order() -> Iterator[None]:
    """Add up gradients of equal tokens in a fixed order, without atomic additions."""
    ph.use_deterministic_algorithms(True)
    yield
    ph.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_fixed_order")
@pytest.mark.parametrize("name", _SLOW)
def test_a_captured_training_computes_the_numbers_of_the_opencl_backend(
    emulation: Emulation, cores: Processor, name: str
) -> None:
    """Kernels, compiler and processor are the same, so all bits are."""
    reference = OpenCLBackend(cores.found)
    reference.runtime.features = replace(emulation.backend.features, quirks=reference.features.quirks)
    runs = [training(TASKS[name], d) for d in (emulation.device, Device.opened("reference", reference))]
    losses = [[run.run() for _ in range(_STEPS)] for run in runs]
    assert losses[0] == losses[1]
    assert len(set(losses[0])) == _STEPS
    for ours, theirs in zip(*(run.model.parameters() for run in runs), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize("name", _SLOW)
def test_a_replayed_step_is_one_graph(emulation: Emulation, name: str) -> None:
    """Besides the copies of its batch and its loss. The learning rate changes nodes of the optimizer only."""
    run = training(TASKS[name], emulation.device)
    for _ in range(_STEPS):
        run.run()
    batch = next(run.batches)
    emulation.backend.synchronize()
    with emulation.library.logged() as calls:
        loss = run.step(*batch)
    assert calls.count("cuGraphLaunch") == 1
    assert calls.count("cuLaunchKernelEx") == 0
    assert calls.count("cuGraphInstantiateWithFlags") == 0
    assert np.isfinite(float(loss))
    updates = calls.count("cuGraphExecKernelNodeSetParams_v2")
    (graph,) = (g for g in emulation.library.machine.handles.live("CUgraphExec") if len(g.nodes) > 4)
    assert 1 <= updates < len(graph.nodes)
    assert set(calls) <= _CALLS_OF_A_REPLAY
