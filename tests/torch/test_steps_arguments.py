"""Arguments and results of recorded steps: trees, views, tensors that are changed in place, methods of objects."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from recorded import Task, inputs

import polyhal.torch

pytestmark = [pytest.mark.usefixtures("torch_on_numpy"), pytest.mark.filterwarnings("error")]


@dataclass
class Pair:
    left: torch.Tensor
    right: Any


def test_trees_of_arguments_and_results() -> None:
    @polyhal.torch.jit
    def step(batch: Any, *, name: str, flags: tuple[bool, int]) -> Any:
        total = batch["x"] + batch["more"][0].left * batch["more"][0].right
        return Pair(total, {"name": name, "sum": total.sum()}), batch["x"], None, flags[1]

    for i in range(5):
        x, y = torch.randn(3, device="polyhal"), torch.randn(3, device="polyhal")
        batch = {"x": x, "more": [Pair(y, 0.5 + i)]}
        pair, same_x, nothing, flag = step(batch, name="n", flags=(True, 3))
        assert isinstance(pair, Pair)
        assert torch.equal(pair.left, x + y * (0.5 + i))
        assert pair.right["name"] == "n"
        assert torch.equal(pair.right["sum"], pair.left.sum())
        assert same_x is x
        assert (nothing, flag) == (None, 3)
    assert len(step.steps) == 1


def test_views_and_shapes_among_the_arguments() -> None:
    step = polyhal.torch.jit(lambda x: (x[:, 1:].sum(), x.t()[0] + 1))
    for i, shape in enumerate([(4, 3)] * 4 + [(2, 3)] * 3 + [(4, 3)] * 2):
        base = torch.randn(shape[1], shape[0], device="polyhal")
        x = base.t() if i % 2 else torch.cat([base.t()] * 2)[: shape[0]]
        total, row = step(x)
        assert torch.equal(row, x[:, 0] + 1)
        assert total.item() == pytest.approx(x[:, 1:].sum().item(), rel=1e-6)


def test_arguments_may_be_changed_in_place() -> None:
    @polyhal.torch.jit
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        y[0] = 7.0
        return x[1:]

    for _ in range(5):
        x, y = torch.ones(3, device="polyhal"), torch.arange(3.0, device="polyhal")
        rest = step(x, y)
        assert x.tolist() == [1, 2, 3]
        assert y.tolist() == [7, 1, 2]
        x.fill_(0)
        assert rest.tolist() == [0, 0]  # a view of the argument


def test_methods_may_be_recorded() -> None:
    class Scaled(Task):
        factor = 2.0

        @polyhal.torch.jit
        def step(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    first, second = Scaled(), Scaled()
    second.factor = 3.0
    for x in inputs():
        assert torch.equal(first.step(x), x * 2)
        assert torch.equal(second.step(x), x * 3)
    assert len(Scaled.step.steps) == 2


def test_containers_of_constants_are_new_in_each_call() -> None:
    constants = [1, 2]
    step = polyhal.torch.jit(lambda x: (x + 1, constants), warm_up=False)
    for i in range(4):
        y, found = step(torch.full((2,), float(i), device="polyhal"))
        assert y.tolist() == [i + 1] * 2
        assert found == [1, 2]
        if found is not constants:
            found.append(3)


class Output(OrderedDict[str, Any]):
    """Named results, as of models of transformers: also attributes, and not updated as a whole."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.__dict__[key] = value

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("results are set one by one")


def test_a_mapping_that_is_set_item_by_item_is_an_argument_and_a_result() -> None:
    @polyhal.torch.jit(warm_up=False)
    def step(batch: Output) -> Output:
        found = Output()
        found["double"], found["name"] = batch["x"] * 2, "n"
        return found

    for x in inputs(4):
        batch = Output()
        batch["x"] = x
        found = step(batch)
        assert type(found) is Output
        assert list(found) == ["double", "name"]
        assert torch.equal(found["double"], x * 2)
        assert found.double is found["double"]
    assert len(step.steps) == 1


def test_a_result_that_python_would_have_to_make_is_named() -> None:
    class Cache:
        def __init__(self, keys: torch.Tensor) -> None:
            self.keys = keys

    step = polyhal.torch.jit(lambda x: (x + 1, Cache(x * 2)), warm_up=False)
    first, second, third = inputs(3)
    step(first)
    with pytest.warns(UserWarning, match="returns another Cache at each call.*runs eagerly from now on"):
        step(second)
    assert torch.equal(step(third)[1].keys, third * 2)


def test_too_many_signatures_are_a_warning_that_lists_them() -> None:
    step = polyhal.torch.jit(lambda x, name: x * 2, max_graphs=1, warm_up=False)
    step(torch.ones(2, device="polyhal"), "a")
    expected = r"more than 1 signatures, now \(float32\[3\] on cpu; 'b'\); expected \(float32\[2\] on polyhal; 'a'\)"
    with pytest.warns(UserWarning, match=expected):
        step(torch.ones(3), "b")


def test_python_runs_once_in_the_call_that_is_given_up() -> None:
    calls = itertools.count()

    @polyhal.torch.jit(warm_up=False)
    def step(x: torch.Tensor) -> torch.Tensor:
        next(calls)
        return x * float(np.random.rand())

    np.random.seed(0)
    expected = [float(np.random.rand()) for _ in range(4)]
    np.random.seed(0)
    x = torch.ones(2, dtype=torch.float64, device="polyhal")
    found = [step(x)[0].item()]
    with pytest.warns(UserWarning, match=r"another number at each call.*in multiply.*runs eagerly from now on"):
        found.append(step(x)[0].item())
    found += [step(x)[0].item() for _ in range(2)]
    assert found == expected
    assert next(calls) == 4


def test_steps_follow_the_default_dtype() -> None:
    step = polyhal.torch.jit(lambda x: torch.zeros(2, device=x.device) + 1)
    x = torch.ones(2).to("polyhal")
    for dtype in (torch.float32, torch.float16, torch.float32):
        torch.set_default_dtype(dtype)
        try:
            assert [step(x).dtype for _ in range(3)] == [dtype] * 3
        finally:
            torch.set_default_dtype(torch.float32)
