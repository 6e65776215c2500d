"""`torch.compile` without a backend uses Polyhal for tensors of the device, and Inductor for others."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from polyhal.torch import default_compiler, private

pytestmark = [
    pytest.mark.slow,  # PyTorch imports Inductor for its configuration
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script"),
]


@pytest.fixture
def by_inductor(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Graphs that reach Inductor, which is replaced: it needs a compiler of C++ and takes seconds to import."""
    graphs: list[Any] = []

    def inductor(self: Any, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        graphs.append(graph)
        return graph.forward

    with monkeypatch.context() as patch:
        patch.setattr(torch._TorchCompileInductorWrapper, "__call__", inductor)
        default_compiler.install()
        yield graphs
    default_compiler.install()


@pytest.mark.parametrize(
    "settings", [{}, {"mode": "max-autotune"}, {"mode": "reduce-overhead"}, {"dynamic": True}, {"backend": "inductor"}]
)
def test_a_model_on_the_device_trains(settings: dict[str, Any], by_inductor: list[Any]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
    copy = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)).to("polyhal")
    copy.load_state_dict(model.state_dict())
    compiled = torch.compile(copy, **settings)
    for n in (3, 5):
        x = torch.randn(n, 4)
        model(x).square().sum().backward()
        compiled(x.to("polyhal")).square().sum().backward()
    for expected, found in zip(model.parameters(), copy.parameters(), strict=True):
        # Sums of 8 rows of products of at most 8 terms of about 1, in float32: 64 roundings of 6e-8.
        torch.testing.assert_close(found.grad.cpu(), expected.grad, rtol=4e-6, atol=4e-6)
    assert not by_inductor


def test_a_graph_that_makes_its_own_tensors_on_the_device(by_inductor: list[Any]) -> None:
    made = torch.compile(lambda n: torch.full((n,), 2.0, device="polyhal") + 1)(3)
    assert made.device.type == "polyhal"
    assert made.tolist() == [3.0, 3.0, 3.0]
    assert not by_inductor


def test_graphs_of_the_cpu_are_inductors(by_inductor: list[Any]) -> None:
    torch.testing.assert_close(torch.compile(lambda x: x.sin() + 1)(torch.ones(2)), torch.ones(2).sin() + 1)
    assert len(by_inductor) == 1


def test_a_second_registration_replaces_the_first(by_inductor: list[Any]) -> None:
    private.before_inductor(lambda: None, lambda graph, inputs: graph.forward)
    default_compiler.install()
    torch.testing.assert_close(torch.compile(lambda x: x.sin() + 1)(torch.ones(2)), torch.ones(2).sin() + 1)
    assert len(by_inductor) == 1


class _Logger(logging.Logger):
    @functools.cache  # noqa: B019  (as transformers caches it)
    def warning_once(self, text: str) -> None:
        """Emit a message the first time."""
        self.warning(text)


@pytest.mark.parametrize("settings", [{}, {"backend": "polyhal"}])
def test_a_cached_method_of_a_logger_does_not_split_a_graph(settings: dict[str, Any], by_inductor: list[Any]) -> None:
    logger, messages = _Logger("once"), list[str]()
    logger.addFilter(lambda record: messages.append(record.getMessage()))  # type: ignore[arg-type, func-returns-value]

    def function(x: torch.Tensor, text: str) -> torch.Tensor:
        x = x.sin()
        logger.warning_once(text)
        return x.cos()

    compiled = torch.compile(function, **settings)
    x = torch.arange(4.0)
    for text in ("first", "first", "second", "first"):
        torch.testing.assert_close(compiled(x.to("polyhal"), text).cpu(), x.sin().cos())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    assert messages == ["first", "second"]
