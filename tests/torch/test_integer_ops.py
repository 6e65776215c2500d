"""Bitwise ops of integers, and loss scaling on devices without float64."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from devices import first_of

import polyhal.torch
from polyhal.hal.device import Device

OPERATORS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
)
DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def all_results(place: str) -> list[torch.Tensor]:
    """Return calls of each operator with two tensors, with a scalar on either side, in place and by name, for each dtype."""
    found: list[torch.Tensor] = []
    for dtype in DTYPES:
        x, y = torch.tensor([1, 5, 100], dtype=dtype, device=place), torch.tensor([2, 1, 3], dtype=dtype, device=place)
        for op in OPERATORS:
            found += [op(x, y), op(x, 2), op(2, y)]
        z = x.clone()
        z <<= y
        z >>= 1
        z &= x
        z |= 3
        z ^= y
        found += [~x, z, torch.bitwise_left_shift(x, y), torch.bitwise_right_shift(x, 1)]
    flags = torch.tensor([True, False, True], device=place)
    found += [op(flags, ~flags) for op in OPERATORS[:3]] + [op(flags, True) for op in OPERATORS[:3]]
    negative = torch.tensor([-8, -1, -100], dtype=torch.int32, device=place)
    narrow = torch.tensor([1, 2, 3], dtype=torch.int8, device=place)
    return [*found, negative >> 2, negative << narrow, narrow << 40, negative >> 33]


def test_operators_on_bits(torch_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    expected = all_results("cpu")
    for found in (all_results(torch_device), polyhal.torch.jit(all_results, warm_up=False, strict=True)(torch_device)):
        for number, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert (a.dtype, a.tolist()) == (b.dtype, b.tolist()), number
    assert polyhal.torch.report().on_cpu == {}


def test_shifts_of_tensors_compile_in_one_graph(fresh_compiler: None, place: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z = x.clone()
        z <<= y
        return [x << y, x >> y, x << 1, z, (x & y) | (x ^ 7)]

    x, y = torch.tensor([1, -5, 100]), torch.tensor([2, 1, 3])
    compiled = torch.compile(f, backend="polyhal", options={"split": False})
    found = compiled(x.to(place), y.to(place))
    assert [t.tolist() for t in found] == [t.tolist() for t in f(x, y)]


def test_activations_of_integers_keep_their_dtype(torch_device: Any) -> None:
    x = torch.tensor([1, 9, -3], dtype=torch.int32)
    for f in (torch.nn.functional.hardtanh, torch.nn.functional.relu6, torch.relu):
        found, expected = f(x.to(torch_device)), f(x)
        assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


@pytest.fixture
def without_doubles() -> Iterator[str]:
    """Return the name of PyTorch's device while it lacks float64."""
    name = first_of("wgpu")
    if not name:
        pytest.skip("among the devices under test, wgpu's have no float64")
    previous = polyhal.get_default_device()
    polyhal.set_default_device(Device(name))
    yield "polyhal"
    polyhal.set_default_device(previous)


def test_gradients_are_unscaled_without_float64(without_doubles: str) -> None:
    parameters: list[list[float]] = []
    for place in ("cpu", without_doubles):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.ones(3).to(place))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scaler = torch.amp.GradScaler(place, init_scale=8.0, growth_interval=2)
        for factor in (1.0, 2.0, float("inf"), 3.0):
            scaler.scale((weight * factor).square().mean()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        assert scaler.get_scale() == 8.0
        parameters.append(weight.tolist())
    assert parameters[1] == pytest.approx(parameters[0], rel=1e-6)


STORES: dict[str, Callable[[torch.Tensor], Any]] = {
    "fill_": lambda x: x.fill_(300),
    "full_like": lambda x: torch.full_like(x, -300),
    "clamp": lambda x: x.clamp(None, 200),
    "masked_fill": lambda x: x.masked_fill(x > 0, 300),
    "setitem": lambda x: x.__setitem__(0, 300),
}


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("is_recorded", [False, True], ids=["eager", "recorded"])
def test_numbers_that_a_dtype_does_not_hold_are_refused(torch_on_numpy: str, name: str, is_recorded: bool) -> None:
    write = polyhal.torch.jit(STORES[name], warm_up=False, strict=True) if is_recorded else STORES[name]
    with pytest.raises(RuntimeError, match="does not fit int8"):
        write(torch.ones(2, dtype=torch.int8, device=torch_on_numpy))
    with pytest.raises(RuntimeError):
        STORES[name](torch.ones(2, dtype=torch.int8))
