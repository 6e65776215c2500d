"""Calls that repeat the call before: they build no signature, and every change of arguments or state is noticed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.hal.compile.scheduler.bindings import ResultMemory
from polyhal.steps.signature import CallArguments

_RNG = np.random.default_rng(5)


@contextmanager
def signatures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the signatures that are built in the block."""
    built: list[int] = []
    init = CallArguments.__init__

    def counted(self: CallArguments, *args: Any) -> None:
        built.append(len(args))
        init(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(CallArguments, "__init__", counted)
        yield built


def made(shape: tuple[int, ...], device: ph.Device, dtype: type = np.float32) -> ph.Tensor:
    return ph.tensor(_RNG.standard_normal(shape).astype(dtype), device=device)


def settled(step: Callable[..., Any], *args: Any) -> Any:
    """Call a step until it repeats itself."""
    for _ in range(4):
        result = step(*args)
    return result


def test_steady_calls_build_no_signature_and_every_change_is_noticed(
    device: ph.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def function(a: Any, b: Any, scale: float, power: int) -> Any:
        nonlocal calls
        calls += 1
        out = a * b * scale
        return out * out if power == 2 else out

    step = ph.jit(function, max_graphs=32)
    a, b = made((4, 3), device), made((4, 3), device)

    def check(*args: Any) -> None:
        x, y, scale, power = args
        got = step(*args)
        want = x.detach().float().numpy().astype(float) * y.detach().float().numpy().astype(float) * scale
        np.testing.assert_allclose(got.detach().numpy(), want**power, rtol=4e-3 if x.dtype is ph.float16 else 1e-5)
        assert got.dtype is function(*args).dtype
        assert got.requires_grad == ((x.requires_grad or y.requires_grad) and ph.is_grad_enabled())

    settled(step, a, b, 2.0, 1)
    with signatures(monkeypatch) as built:
        for scale in (1.5, 2.5):
            check(made((4, 3), device), b, scale, 1)
    assert not built
    changes = [
        (made((5, 3), device), made((5, 3), device), 2.0, 1),
        (made((3, 4), device).T, b, 2.0, 1),
        (made((4, 6), device)[:, 1:4], b, 2.0, 1),
        (a.to(ph.float16), b.to(ph.float16), 2.0, 1),
        (made((4, 3), device).requires_grad_(), b, 2.0, 1),
        (a, a, 2.0, 1),
        (a, b, 2.0, 2),
    ]
    for changed in changes:
        check(a, b, 2.0, 1)
        check(a, b, 3.0, 1)
        check(*changed)
        check(*changed)
    with ph.no_grad():
        check(made((4, 3), device).requires_grad_(), b, 2.0, 1)
    with pytest.raises(TypeError):
        step(a, b, 2.0)


def test_results_that_the_program_keeps_stay_as_they_are(device: ph.Device) -> None:
    step = ph.jit(lambda x: (x + 1, x * 2))
    xs = [made((7,), device) for _ in range(8)]
    kept = [step(x) for x in xs]
    views = [step(x)[0][2:5] for x in xs]
    for x, (more, twice), view in zip(xs, kept, views, strict=True):
        assert np.array_equal(more.numpy(), x.numpy() + 1)
        assert np.array_equal(twice.numpy(), x.numpy() * 2)
        assert np.array_equal(view.numpy(), x.numpy()[2:5] + 1)
    first = step(xs[0])[0]
    first += 10  # in place, in the memory that the step would use again
    again = step(xs[0])[0]
    assert np.array_equal(again.numpy(), xs[0].numpy() + 1)
    assert np.array_equal(first.numpy(), xs[0].numpy() + 1 + 10)


def test_a_module_and_a_leaf_that_change_are_noticed(device: ph.Device) -> None:
    layer = ph.nn.Dropout(0.5)
    weight = made((64,), device).requires_grad_()
    step = ph.jit(lambda x: layer(x * weight))
    x = ph.ones((64,), device=device)
    assert (settled(step, x).detach().numpy() == 0).any()
    layer.eval()
    got = settled(step, x)
    assert got.requires_grad
    assert np.array_equal(got.detach().numpy(), weight.detach().numpy())
    weight.requires_grad = False  # without the method that counts such changes
    assert not settled(step, x).requires_grad
    layer.train()
    assert (step(x).numpy() == 0).any()


def test_an_argument_that_changes_in_place_is_noticed(numpy_device: ph.Device) -> None:
    @dataclass(unsafe_hash=True)
    class Settings:
        factor: int

    own = Settings(1)
    step = ph.jit(lambda x, settings: x * settings.factor)
    x = made((3,), numpy_device)
    settled(step, x, own)
    for factor in (3, 1, 4):
        own.factor = factor
        assert np.array_equal(step(x, own).numpy(), x.numpy() * factor)


def test_another_default_device_is_noticed() -> None:
    step = ph.jit(lambda: ph.zeros((2,)) + 1)
    try:
        for name in ("numpy", "numpy:no_f64", "numpy"):
            ph.set_default_device(name)
            assert settled(step).device is ph.Device(name)
        with ph.Device("numpy:no_f64") as other:
            assert settled(step).device is other
    finally:
        ph.set_default_device(None)


def test_the_signature_of_steady_calls_counts_as_used(numpy_device: ph.Device) -> None:
    recorded: list[tuple[int, ...]] = []

    def function(x: ph.Tensor) -> ph.Tensor:
        recorded.append(x.shape)
        return x + 1

    step = ph.jit(function, max_graphs=2)
    often, other, third = (ph.ones((n,), device=numpy_device) for n in (1, 2, 3))
    settled(step, often)
    settled(step, other)
    settled(step, often)
    recorded.clear()
    with pytest.warns(UserWarning, match="more than 2 signatures"):
        step(third)  # evicts the signature of `other`
    step(often)
    assert (1,) not in recorded


def test_an_interrupted_steady_call_leaves_the_step_as_it_was(
    numpy_device: ph.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = ph.jit(lambda x, s: x * s)
    x = ph.ones((3,), device=numpy_device)
    kept = settled(step, x, 2.0)
    executable = step.steps[0].executable

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(executable, "_actions", [interrupt])
        with pytest.raises(KeyboardInterrupt):
            step(x, 3.0)
    assert np.array_equal(step(x, 5.0).numpy(), [5, 5, 5])
    assert np.array_equal(kept.numpy(), [2, 2, 2])


def test_steady_calls_after_a_release_a_failure_and_on_a_new_thread(
    device: ph.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = ph.jit(lambda x, s: x * s)
    x = made((5,), device)
    kept = settled(step, x, 2.0)
    executable = step.steps[0].executable
    executable.release()
    assert np.array_equal(step(x, 3.0).numpy(), x.numpy() * 3)
    settled(step, x, 3.0)
    with monkeypatch.context() as patch:
        patch.setattr(ResultMemory, "renew", _no_memory)
        held = step(x, 4.0)
        with pytest.raises(MemoryError):
            step(x, 5.0)
    with signatures(monkeypatch) as built, ThreadPoolExecutor(1) as thread:
        assert np.array_equal(thread.submit(step, x, 6.0).result().numpy(), x.numpy() * 6)
    assert not built
    assert np.array_equal(held.numpy(), x.numpy() * 4)
    assert np.array_equal(kept.numpy(), x.numpy() * 2)


def _no_memory(result: ResultMemory) -> bool:
    raise MemoryError(result.spec)


def test_threads_with_their_own_modes_take_turns(numpy_device: ph.Device) -> None:
    weight = ph.ones((5,), device=numpy_device).requires_grad_()
    step = ph.jit(lambda x: x * weight)
    wrong: list[Any] = []

    def calls(enabled: bool, value: float) -> None:
        x = ph.tensor(np.full(5, value, np.float32), device=numpy_device)
        with ph.enable_grad() if enabled else ph.no_grad():
            for _ in range(200):
                got = step(x)
                if got.requires_grad is not enabled or (got.detach().numpy() != value).any():
                    wrong.append(got)

    threads = [threading.Thread(target=calls, args=case) for case in ((True, 2.0), (False, 3.0), (True, 4.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_hooks_added_and_removed_between_calls_are_noticed(device: ph.Device) -> None:
    """A module's and a leaf's hooks count from the next call on; the same function registered again repeats a step."""
    model = ph.nn.Linear(3, 2).to(device)
    x = ph.tensor(np.ones((4, 3), np.float32), device=device)

    @ph.jit
    def step(x: ph.Tensor) -> ph.Tensor:
        model.zero_grad()
        y = model(x)
        y.sum().backward()
        return y

    def double(_: Any, __: Any, out: ph.Tensor) -> ph.Tensor:
        return out * 2

    plain = model(x).numpy()
    for _ in range(5):
        np.testing.assert_allclose(step(x).numpy(), plain, rtol=1e-6)
    for _ in range(2):
        handle = model.register_forward_hook(double)
        for _ in range(4):
            np.testing.assert_allclose(step(x).numpy(), 2 * plain, rtol=1e-6)
        handle.remove()
        for _ in range(4):
            np.testing.assert_allclose(step(x).numpy(), plain, rtol=1e-6)
    remove = model.bias.register_hook(lambda g: g * 3)
    for _ in range(4):
        step(x)
        np.testing.assert_allclose(model.bias.grad.numpy(), [12, 12])
    remove()
    for _ in range(4):
        step(x)
        np.testing.assert_allclose(model.bias.grad.numpy(), [4, 4])
