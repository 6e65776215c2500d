"""Models as C programs on every OpenCL device: several training steps and inference, equal to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal import export, nn, optim
from polyhal.hal.system.discovery.registry import registry
from polyhal.models.gpt import GPT, GPTConfig
from polyhal.nn import functional as F
from tests.export.c_builds import CMAKE, COMPILER, build, build_by_cmake, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="needs gcc or clang"),
    pytest.mark.parametrize("device", [f"opencl:{i}" for i, _ in enumerate(registry().probe("opencl"))]),
]
_STEPS = 4


def _mlp() -> tuple[nn.Module, list[tuple[np.ndarray, np.ndarray]]]:
    generator = np.random.default_rng(1)
    model = nn.Sequential(nn.Linear(20, 48), nn.LayerNorm(48), nn.GELU(), nn.Dropout(0.2), nn.Linear(48, 7))
    x = generator.standard_normal((_STEPS, 16, 20)).astype(np.float32)
    return model, list(zip(x, generator.integers(0, 7, (_STEPS, 16)), strict=True))


def _cnn() -> tuple[nn.Module, list[tuple[np.ndarray, np.ndarray]]]:
    generator = np.random.default_rng(2)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12 * 4 * 4, 5),
    )
    x = generator.standard_normal((_STEPS, 6, 3, 12, 12)).astype(np.float32)
    return model, list(zip(x, generator.integers(0, 5, (_STEPS, 6)), strict=True))


def _gpt() -> tuple[nn.Module, list[tuple[np.ndarray, np.ndarray]]]:
    generator = np.random.default_rng(3)
    model = GPT(GPTConfig(vocab_size=33, block_size=16, n_layer=2, n_head=2, n_embd=32, dropout=0.1))
    tokens = generator.integers(0, 33, (_STEPS, 3, 17))
    return model, [(t[:, :-1].copy(), t[:, 1:].copy()) for t in tokens]


def _classifier_loss(model: Any, x: Any, y: Any) -> Any:
    return F.cross_entropy(model(x), y)


def _gpt_loss(model: Any, x: Any, y: Any) -> Any:
    logits = model(x)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


CASES: dict[str, tuple[Callable[[], Any], Callable[..., Any], Callable[[Any], Any]]] = {
    "mlp": (_mlp, _classifier_loss, lambda ps: optim.AdamW(ps, lr=1e-2)),
    "cnn": (_cnn, _classifier_loss, lambda ps: optim.SGD(ps, lr=1e-2, momentum=0.9)),
    "gpt": (_gpt, _gpt_loss, lambda ps: optim.AdamW(ps, lr=1e-2)),
}


@pytest.mark.parametrize("case", list(CASES))
def test_training_and_inference_in_c_equal_python_s(case: str, device: str, tmp_path: Path) -> None:
    """Weights, losses and logits have the same bits, whatever an optimized build of the runtime does."""
    make, loss_of, optimizer_of = CASES[case]
    polyhal.manual_seed(5)
    model, batches = make()
    model.to(device)
    optimizer = optimizer_of(model.parameters())

    @polyhal.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    def python(batch: tuple[np.ndarray, np.ndarray]) -> float:
        return float(step(*(polyhal.tensor(a, device=device) for a in batch)).item())

    for _ in range(3):
        python(batches[0])
    program = build(export.c(step, tmp_path / "step"), optimize="-O2")
    saved = tmp_path / "saved.safetensors"
    code, messages, outputs = run(program, batches, save=saved)
    assert (code, messages) == (0, "")
    losses = np.array([python(b) for b in batches], np.float32)
    np.testing.assert_array_equal(np.frombuffer(outputs, np.float32), losses)
    state = polyhal.load(saved, device)["state"]
    for name, weight in model.state_dict().items():
        if name in state:  # counters of batches are numbers of Python
            np.testing.assert_array_equal(state[name].numpy(), weight.numpy(), err_msg=name)
    assert {n for n, _ in model.named_parameters()} <= set(state)
    model.load_state_dict(model.state_dict() | {n: state[n] for n, _ in model.named_parameters()})
    _check_inference(model, batches[0][0], device, tmp_path)


def _check_inference(model: Any, x: np.ndarray, device: str, folder: Path) -> None:
    model.eval()

    @polyhal.jit
    def infer(x: Any) -> Any:
        with polyhal.no_grad():
            return model(x)

    expected = [infer(polyhal.tensor(x, device=device)).numpy() for _ in range(3)][-1]
    project = export.c(infer, folder / "infer", name="infer", embed=True, outputs=["logits"])
    code, messages, outputs = run(build(project, prefix="infer"), [[x]])
    assert (code, messages) == (0, "")
    np.testing.assert_array_equal(np.frombuffer(outputs, np.float32).reshape(expected.shape), expected)


@pytest.mark.skipif(CMAKE is None, reason="needs cmake")
def test_the_example_of_a_project_builds_by_cmake_and_runs(device: str, tmp_path: Path) -> None:
    import subprocess

    model = nn.Linear(3, 2).to(device)

    @polyhal.jit
    def step(x: Any) -> Any:
        return {"scores": model(x), "largest": model(x).argmax(axis=1)}

    x = polyhal.zeros((1, 3), device=device)
    for _ in range(3):
        expected = step(x)
    example = build_by_cmake(export.c(step, tmp_path / "step"))
    done = subprocess.run([str(example)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    shown = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert float(shown["scores"]) == expected["scores"].numpy()[0, 0]
    assert int(shown["largest"]) == expected["largest"].numpy()[0]
    assert subprocess.run([str(example), "no such device"], capture_output=True, timeout=300).returncode == 3
