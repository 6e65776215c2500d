"""Host data in captured steps, results that Python computes, and whether parameters are frozen."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import Device, Tensor, jit, nn, optim
from polyhal.hal.errors import CaptureError


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def added(x: Tensor) -> Tensor:
    """A constant that is changed in place: each call begins with its first value."""
    total = ph.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)
    total.add_(x[0])
    return total


_CONSTANTS: dict[str, Callable[[Tensor], Tensor]] = {
    "a list": lambda x: x * ph.tensor([1.0, 2.0, 3.0, 4.0], device=x.device),
    "a matrix": lambda x: x @ ph.eye(4, device=x.device),
    "a range": lambda x: x + ph.linspace(0, 1, 4, device=x.device),
    "an index": lambda x: x[[0, 2]],
    "an array": lambda x: x * np.arange(4, dtype=np.float32),
    "a parameter": lambda x: nn.Parameter(x * 2) * 3,
    "a number that is read": lambda x: x * ph.tensor([1.0, 2.0], device=x.device)[1].item(),
    "changed in place": added,
    "returned": lambda x: ph.tensor([1.0, 2.0], device=x.device),
}


@pytest.mark.parametrize("name", _CONSTANTS)
def test_constants_made_inside_are_captured(device: Device, name: str) -> None:
    function = _CONSTANTS[name]
    x = ph.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), device=device)
    step = jit(function, warm_up=False)
    for _ in range(4):
        np.testing.assert_array_equal(step(x).numpy(), function(x).numpy())
    assert len(step.graphs) == 1


def test_constants_made_inside_take_part_in_gradients_of_results(device: Device) -> None:
    w = ph.ones((3,), device=device, requires_grad=True)
    step = jit(lambda: (w * w * ph.tensor([1.0, 2.0, 3.0], device=device)).sum(), warm_up=False)
    for _ in range(4):
        w.grad = None
        step().backward()
        assert w.grad is not None
        assert w.grad.tolist() == [2.0, 4.0, 6.0]


def test_a_constant_that_the_program_keeps_has_memory(numpy_device: Device) -> None:
    kept: list[Tensor] = []

    def step(x: Tensor, fail: bool = False) -> Tensor:
        if not kept:
            kept.append(ph.tensor([1.0, 2.0], device=numpy_device))
        if fail:
            raise RuntimeError("stopped")
        return x * kept[0]

    run, x = jit(step, warm_up=False), ph.ones((2,), device=numpy_device)
    with pytest.raises(RuntimeError, match="stopped"):
        run(x, True)
    assert kept[0].tolist() == [1.0, 2.0]
    kept.clear()
    assert [run(x).tolist() for _ in range(4)] == [[1.0, 2.0]] * 4
    kept[0].add_(1)
    assert run(x).tolist() == [2.0, 3.0]


def test_a_constant_of_other_values_at_each_call_is_noticed() -> None:
    values = iter(range(10))
    step = jit(lambda x: x * ph.tensor([float(next(values))], device="numpy"), warm_up=False)
    x = ph.ones((1,), device="numpy")
    with pytest.warns(UserWarning, match=r"makes a constant of other values at each call.*test_jit_constants"):
        found = [step(x).item() for _ in range(5)]
    # A recording takes a value, and so does the eager call that follows when capture is given up.
    assert found == sorted(set(found))


@pytest.mark.parametrize("warm_up", [False, True])
def test_numbers_that_python_computes_are_noticed(warm_up: bool) -> None:
    settings = {"lr": 1.0}
    w = ph.zeros((2,), device="numpy")

    def step() -> None:
        w.sub_(ph.ones((2,), device="numpy") * settings["lr"])

    run = jit(step, warm_up=warm_up)

    def train() -> None:
        for i in range(6):
            settings["lr"] = 0.5**i
            run()

    with pytest.warns(UserWarning, match=r"computes another number at each call \([\d.]+, then [\d.]+, in multiply\)"):
        train()
    assert w.tolist() == [-sum(0.5**i for i in range(6))] * 2


def test_nan_is_a_number_that_stays_the_same(recwarn: pytest.WarningsRecorder) -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        marked = ph.where(x > 1, x, float("nan"))
        return marked + ph.full((3,), float("nan"), device=x.device).nan_to_num(float("nan"))

    for _ in range(4):
        assert np.isnan(step(ph.ones((3,), device="numpy")).numpy()).all()
    assert len(step.graphs) == 1
    assert not recwarn.list


def test_a_parameter_frozen_by_assignment_is_trained_no_more(device: Device) -> None:
    ph.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    optimizer = optim.SGD(model.parameters(), lr=1e-3)
    x = ph.ones((2, 4), device=device)
    first: Any = model[0]

    @jit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(5):
        step()
    for trains in (False, True, False, True, False):
        first.weight.requires_grad = trains
        for _ in range(4):
            before = first.weight.numpy(), first.bias.numpy()
            step()
            assert np.array_equal(first.weight.numpy(), before[0]) is not trains
            assert not np.array_equal(first.bias.numpy(), before[1])
    assert len(step.graphs) <= 3  # a third one where the gradient does not exist yet


def test_gradients_of_results_follow_a_parameter_frozen_by_assignment(numpy_device: Device) -> None:
    layer = nn.Linear(2, 2).to(numpy_device)
    run = jit(lambda x: layer(x).sum(), warm_up=False)
    x = ph.ones((1, 2), device=numpy_device)
    for trains in (True, False, True):
        layer.weight.requires_grad = trains
        for _ in range(3):
            layer.zero_grad()
            run(x).backward()
            assert (layer.weight.grad is not None) is trains
            assert layer.bias.grad is not None


def test_a_parameter_made_in_a_step_outlives_it(numpy_device: Device) -> None:
    kept: list[nn.Parameter] = []

    def step(x: Tensor) -> Tensor:
        kept[:] = [nn.Parameter(x * 2)]
        return kept[0] * 3

    run = jit(step, warm_up=False)
    for i in range(1, 5):
        assert run(ph.full((2,), float(i), device=numpy_device)).tolist() == [6.0 * i] * 2
        assert kept[0].tolist() == [2.0 * i] * 2


def test_values_that_ops_make_of_constants_are_not_read() -> None:
    with pytest.raises(CaptureError, match="is read while it is only being recorded"):
        jit(lambda: (ph.tensor([1.0], device="numpy") * 2).item(), warm_up=False)()


def test_chains_of_constants_may_be_longer_than_the_stack_of_python(numpy_device: Device) -> None:
    def step(x: Tensor) -> Tensor:
        constant = ph.zeros(2, device=numpy_device)
        for _ in range(sys.getrecursionlimit() // 2):
            constant = (constant + 1).abs()
        return x * constant

    run = jit(step, warm_up=False)
    for _ in range(3):
        assert run(ph.ones(2, device=numpy_device)).tolist() == [float(sys.getrecursionlimit() // 2)] * 2


@pytest.mark.parametrize("text", ["{0}", "{0:.3f}", "{0!r}"])
def test_a_tensor_is_printed_while_it_is_recorded(device: Device, text: str) -> None:
    """It has no elements, and the recorded step is the one without the text."""
    texts: list[str] = []

    def printed(x: Tensor) -> Tensor:
        y = x * 2
        texts.append(text.format(y))
        return y + 1

    step = jit(printed)
    x = ph.tensor([1.5], device=device)
    assert [step(x).item() for _ in range(4)] == [4.0] * 4
    assert "3" in texts[0]
    shape = f"shape=(1,), dtype=polyhal.float32, device={device.name!r})"
    assert texts[1:] == [f"tensor(no elements while a step is recorded, {shape}"] * 2
    assert [n.op.name for n in step.graphs[0].nodes] == ["multiply", "add"]
