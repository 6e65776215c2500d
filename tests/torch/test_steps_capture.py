"""Constants that a step makes, and answers to libraries that query whether a step is being captured."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch.distributions import Distribution

import polyhal.torch
from polyhal.hal.compile.recording import Recording
from polyhal.torch.reads import Reads
from polyhal.torch.steps import active
from polyhal.torch.steps.answers import answer
from polyhal.torch.steps.host import HostProgram
from polyhal.torch.steps.watch import StepWatch

pytestmark = [pytest.mark.usefixtures("torch_on_numpy"), pytest.mark.filterwarnings("error")]
DEVICE = "polyhal"


def answering() -> AbstractContextManager[None]:
    """Answer queries as while this thread records a step."""
    return active.recording(StepWatch(Recording(), HostProgram(0), Reads(), is_strict=True), (answer,))


def _agree(function: Callable[..., Any], *arguments: tuple[Any, ...], steps: int | None = 1) -> None:
    """Compare a recorded function with the function, for several arguments, each given as often as a recording needs."""
    recorded = polyhal.torch.jit(function)
    for given in arguments:
        for _ in range(4):
            x = torch.randn(2, 3, device=DEVICE)
            assert torch.equal(recorded(x, *given), function(x, *given))
    assert steps is None or len(recorded.steps) == steps


@pytest.mark.parametrize(
    "empty",
    [
        lambda x: torch.tensor([], dtype=x.dtype, device=x.device),
        lambda x: torch.empty(0).to(x.device),
        lambda x: torch.tensor([]).to(x.device),
        lambda x: torch.zeros(0, 3).to(x.device).reshape(-1),
        lambda x: x.new_tensor([]),
        lambda x: torch.empty(0, device=x.device),
    ],
)
def test_tensors_without_elements_are_made_in_a_step(empty: Callable[[torch.Tensor], torch.Tensor]) -> None:
    _agree(lambda x: torch.cat([empty(x), x.reshape(-1)]), ())


def test_states_that_begin_without_elements_grow_in_a_step() -> None:
    class Cache:
        def __init__(self, like: torch.Tensor) -> None:
            self.keys = torch.tensor([], dtype=like.dtype, device=like.device)

        def update(self, new: torch.Tensor) -> torch.Tensor:
            self.keys = torch.cat([self.keys, new], dim=-2)
            return self.keys

    def step(x: torch.Tensor) -> torch.Tensor:
        cache = Cache(x)
        cache.update(x[None])
        return cache.update(2 * x[None])

    _agree(step, ())


@pytest.mark.parametrize(
    "make",
    [
        lambda k, s: torch.tensor(3, device=DEVICE),
        lambda k, s: torch.tensor((1.0, 2.0, 3.0), device=DEVICE),
        lambda k, s: torch.tensor([1.0, 2.0, 3.0], device=DEVICE),
        lambda k, s: torch.tensor([1.0, 2.0, 3.0]).to(DEVICE),
        lambda k, s: torch.as_tensor((1, 2, 3), dtype=torch.float32, device=DEVICE),
        lambda k, s: torch.tensor((k, 2 * k, s), device=DEVICE),
        lambda k, s: torch.tensor(s, device=DEVICE),
    ],
)
def test_constants_of_python_numbers_are_equal_in_each_run(make: Callable[[int, float], torch.Tensor]) -> None:
    _agree(lambda x, k, s: x * make(k, s), (2, 0.5), (3, 0.25), (2, 1.5), steps=None)


def test_writes_to_a_constant_last_for_one_run() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        total = torch.tensor((1.0, 2.0, 3.0), device=DEVICE)
        return total.add_(x[0])

    _agree(step, ())


def test_lists_behind_a_constant_are_read_at_each_run() -> None:
    numbers = [1.0, 2.0, 3.0]
    step = polyhal.torch.jit(lambda x: x * torch.tensor(numbers, device=DEVICE))
    for i in range(6):
        numbers[0] = float(i // 4)
        x = torch.randn(2, 3, device=DEVICE)
        assert torch.equal(step(x), x * torch.tensor(numbers, device=DEVICE))


def test_libraries_notice_that_a_step_is_captured() -> None:
    """As transformers does it: the answer of a build without CUDA is an error."""

    def is_capturing() -> bool:
        try:
            return torch.cuda.is_current_stream_capturing()
        except RuntimeError:
            return False

    seen: list[tuple[bool, bool, bool]] = []
    note = seen.append  # of a list that the step does not refer to itself

    def body(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        note((torch.polyhal.is_current_stream_capturing(), is_capturing(), torch.compiler.is_compiling()))
        if not is_capturing() and mask.all():
            return x * 1
        return x.masked_fill(~mask, 0)

    before = torch.cuda.is_current_stream_capturing
    step = polyhal.torch.jit(body)
    for i in range(5):
        x, mask = torch.randn(2, 3, device=DEVICE), torch.ones(2, 3, dtype=torch.bool, device=DEVICE)
        mask[0, 1] = i % 2
        assert torch.equal(step(x, mask), x * mask)
    assert seen == [(False, False, False), *[(True, True, False)] * 2]
    assert torch.cuda.is_current_stream_capturing is before


class _MissingModule:
    """A module that a library imports at the first read of an attribute, and that is not installed."""

    def __getattr__(self, name: str) -> Any:
        raise ImportError("this requires a module that is not installed")


_missing = _MissingModule()


def test_objects_that_a_step_names_without_reading_them_are_not_read() -> None:
    def body(x: torch.Tensor, uses_it: bool) -> torch.Tensor:
        return _missing.compute(x) if uses_it else x + 1

    _agree(body, (False,))


def test_answers_concern_the_recording_thread_and_end_with_it() -> None:
    before = vars(Distribution)["_validate_args"]

    def elsewhere(found: list[Any]) -> None:
        found.append(Distribution._validate_args)

    with answering():
        with pytest.raises(ZeroDivisionError), answering():
            raise ZeroDivisionError
        found: list[Any] = []
        thread = threading.Thread(target=elsewhere, args=(found,))
        thread.start()
        thread.join()
        assert found == [before]
        assert not Distribution._validate_args
        assert torch.cuda.is_current_stream_capturing()
        torch._check_tensor_all(torch.zeros(2, dtype=torch.bool))
    assert vars(Distribution)["_validate_args"] is before
    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        torch._check_tensor_all(torch.zeros(2, dtype=torch.bool))


def test_a_default_that_is_set_in_a_recording_stays() -> None:
    try:
        with answering():
            Distribution.set_default_validate_args(False)
        assert vars(Distribution)["_validate_args"] is False
    finally:
        Distribution.set_default_validate_args(__debug__)


def test_arguments_of_distributions_are_checked_op_by_op_only() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        normal = torch.distributions.Normal(x, x.abs() + 1)
        mixed = torch.distributions.Categorical(logits=x)
        return normal.log_prob(x + 1).sum() + mixed.entropy().sum()

    _agree(step, ())
    with pytest.raises(ValueError, match="Expected parameter scale"):
        torch.distributions.Normal(torch.zeros(2, device=DEVICE), torch.zeros(2, device=DEVICE) - 1)


class _Stream:
    """The stream of an accelerator that is capturing as long as its library says so."""

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()


def test_optimizers_need_not_be_capturable_where_there_is_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimizers refuse steps that a CUDA graph could not hold if the accelerator is CUDA and captures."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_stream", _Stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)  # for PyTorch 2.11 and older
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    recorded, eager = torch.ones(3, device=DEVICE, requires_grad=True), torch.ones(3, device=DEVICE, requires_grad=True)

    def step_of(p: torch.Tensor) -> Callable[[], None]:
        optimizer = torch.optim.AdamW([p], lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            (p**2).sum().backward()
            optimizer.step()

        return step

    first, second = polyhal.torch.jit(step_of(recorded), strict=True), step_of(eager)
    for _ in range(4):
        first()
        second()
    assert torch.equal(recorded, eager)
    with answering(), torch.no_grad():
        torch.optim.AdamW([recorded]).step()
    with monkeypatch.context() as captures:
        captures.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        with pytest.raises(RuntimeError, match="capturable"):
            torch.optim.AdamW([recorded]).step()
