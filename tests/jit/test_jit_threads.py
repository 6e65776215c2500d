"""Captured steps in several threads: each trains as in a single thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import polyhal as ph
from polyhal import Device, Tensor, jit, nn, optim
from polyhal.nn import functional as F

_WIDTHS = ((8, 16), (12, 24), (20, 32), (5, 40))


def training(device: Device, number: int) -> Callable[[], Tensor]:
    """A captured step of a model, with sizes of its own and kernels that all models use."""
    width, hidden = _WIDTHS[number]
    ph.manual_seed(number)
    model = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, 3)).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    rng = np.random.default_rng(number)
    x = ph.tensor(rng.standard_normal((16, width)).astype(np.float32), device=device)
    y = ph.tensor(rng.integers(0, 3, 16), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return jit(step)


def in_threads(*work: Callable[[], None]) -> None:
    """Run functions at once, and raise the first error of any."""
    errors: list[BaseException] = []

    def run(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f,)) for f in work]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("attempt", range(2))
def test_models_that_train_in_threads_of_their_own_do_as_alone(device: Device, attempt: int) -> None:
    numbers = range(len(_WIDTHS))
    alone = [[step().item() for _ in range(40)] for step in (training(device, n) for n in numbers)]
    steps = [training(device, n) for n in numbers]
    together: list[list[float]] = [[] for _ in numbers]
    in_threads(*[lambda n=n: together[n].extend(steps[n]().item() for _ in range(40)) for n in numbers])
    assert together == alone


def test_backward_passes_of_one_captured_function_take_turns(device: Device) -> None:
    w = ph.ones((16, 16), device=device)
    run = jit(lambda x: ((x @ w) ** 2).sum(), warm_up=False)
    leaf = ph.ones((16, 16), device=device, requires_grad=True)
    for _ in range(3):
        run(leaf).backward()

    def work(number: int) -> None:
        x = ph.full((16, 16), float(number), device=device).requires_grad_()
        for _ in range(10):
            x.grad = None
            run(x).backward()
            assert x.grad is not None
            np.testing.assert_array_equal(x.grad.numpy(), 2.0 * 256 * number)

    in_threads(*[lambda n=n: work(n) for n in range(4)])
