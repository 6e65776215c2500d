"""`polyhal.check`: the first launch that goes wrong is named, with module and line, in eager calls and in captured steps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import faulty_kernels as faulty
import numpy as np
import pytest

import polyhal as ph
from polyhal import Tensor, nn
from polyhal.hal.core import dispatch
from polyhal.hal.core.settings.state import settings
from polyhal.hal.device import Device
from polyhal.hal.errors import CaptureError, NonFiniteError, WrongResultError

F = nn.functional


class Attention(nn.Module):
    """A product of two linear layers and a softmax, as in a model."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.query = nn.Linear(4, 3, device=device)

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(self.query(x) * 2.0, -1)  # the scores


class Model(nn.Module):
    def __init__(self, device: Device) -> None:
        super().__init__()
        self.attention = Attention(device)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x) + 1.0


def stepper(device: Device, captured: bool) -> Callable[[], Tensor]:
    """A forward and backward pass; the captured one has been recorded."""
    ph.manual_seed(0)
    model = Model(device)
    x = Tensor(np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), device=device)

    def step() -> Tensor:
        model.zero_grad()
        loss = (model(x) * x[:, :3]).sum()
        loss.backward()
        return loss

    if not captured:
        return step
    jitted = ph.jit(step)
    for _ in range(3):
        jitted()
    return jitted


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = settings.key, settings.observers, dispatch.thread.executor
    yield
    assert (settings.key, settings.observers, dispatch.thread.executor) == before


@pytest.mark.parametrize("captured", [False, True])
def test_a_wrong_kernel_is_named(captured: bool) -> None:
    step = stepper(faulty.opened(faulty.WrongResult()), captured)
    with ph.check("reference"), pytest.raises(WrongResultError) as caught:
        step()
    text = str(caught.value)
    assert "[softmax] 6 of 6 elements of 'out' are wrong, worst at [" in text
    assert "test_check.py:" in text
    assert "# the scores (module attention)" in text
    assert "it ran as native kernel wrong rows" in text
    assert text.endswith("`polyhal verify faulty --only 'forward/softmax/*'` examines the kernel (on faulty)")


@pytest.mark.parametrize("captured", [False, True])
def test_a_wrong_gradient_is_named_with_the_line_of_the_forward_pass(captured: bool) -> None:
    step = stepper(faulty.opened(faulty.WrongGradient()), captured)
    with ph.check("reference"), pytest.raises(WrongResultError) as caught:
        step()
    assert "[softmax_grad]" in str(caught.value)
    assert "in the gradient of softmax at" in str(caught.value)
    assert "# the scores (module attention)" in str(caught.value)


@pytest.mark.parametrize("captured", [False, True])
def test_right_kernels_pass(captured: bool, device: Device) -> None:
    step = stepper(device, captured)
    before = step().numpy()
    with ph.check("all"):
        np.testing.assert_array_equal(step().numpy(), before)


def test_a_number_is_right_as_its_dtype_rounds_it(device: Device) -> None:
    x = ph.ones((2,), device=device)
    with ph.check("reference"):
        assert F.pad(x, (1, 0), value=0.1).tolist() == [float(np.float32(0.1)), 1, 1]


def test_ill_conditioned_inputs_are_no_fault_of_the_device(device: Device) -> None:
    x = Tensor(np.array([1e4, 1e4 + 1], np.float32), device=device)
    with ph.check("reference"):
        F.cross_entropy(x.reshape(1, 2), Tensor([0], device=device))
        (x * 3.3).cos()
        x.var()


@pytest.mark.parametrize("captured", [False, True])
def test_the_first_nan_is_named(captured: bool, device: Device) -> None:
    def step(x: Tensor) -> Tensor:
        return (x * 2.0).log() + 1.0  # the culprit

    run = ph.jit(step, warm_up=False) if captured else step
    run(Tensor([1.0, 2.0], device=device))
    run(Tensor([1.0, 2.0], device=device))
    with ph.check("nan"):
        run(Tensor([1.0, 2.0], device=device))
        with pytest.raises(NonFiniteError, match=r"the result has 1 NaN and 0 infinite of 2 values, .*# the culprit"):
            run(Tensor([1.0, -2.0], device=device))


def test_infinities_that_the_program_writes_are_meant(device: Device) -> None:
    mask = Tensor([[False, True], [False, False]], device=device)
    with ph.check("nan"):
        scores = ph.zeros((2, 2), device=device).masked_fill(mask, -np.inf)
        assert F.softmax(scores.contiguous() * 2.0, -1).tolist() == [[1, 0], [0.5, 0.5]]
        with pytest.raises(NonFiniteError, match="1 NaN"):
            scores * 0.0


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("op", ["embedding", "take_along_axis", "cross_entropy_rows", "wrap_index"])
def test_an_index_out_of_range_is_an_error_on_every_device(op: str, captured: bool, device: Device) -> None:
    x = Tensor([[1.0, 2.0, 3.0]], device=device)
    calls: dict[str, Callable[[Tensor], Any]] = {
        "embedding": lambda index: F.embedding(index, x.T),
        "take_along_axis": lambda index: ph.take_along_axis(x, index.reshape(1, 1), 1),
        "cross_entropy_rows": lambda index: F.cross_entropy(x, index),
        "wrap_index": lambda index: x.index_add(1, index, x[:, :1]),
    }
    run = ph.jit(calls[op], warm_up=False) if captured else calls[op]
    run(Tensor([1], device=device))
    run(Tensor([1], device=device))
    with ph.check("bounds"):
        run(Tensor([2], device=device))
        with pytest.raises(IndexError, match=r"index 7 .*is out of range; expected -?\d to 2; look at .*test_check.py"):
            run(Tensor([7], device=device))


def test_debug_mode_is_the_check_of_bounds(device: Device) -> None:
    run = ph.jit(lambda index: F.embedding(index, ph.ones((3, 2), device=device)), warm_up=False)
    run(Tensor([1], device=device))
    ph.debug()
    try:
        assert ph.is_debug()
        with pytest.raises(IndexError, match="index 7"):
            run(Tensor([7], device=device))
    finally:
        ph.debug(False)
    assert not ph.is_debug()


def test_checks_see_what_autocast_makes_of_ops(device: Device) -> None:
    layer, x = nn.Linear(4, 3, device=device), ph.ones((2, 4), device=device)
    with ph.check("reference"), ph.amp.autocast():
        assert layer(x).dtype is ph.bfloat16
    with ph.amp.autocast(), ph.check("reference"):
        assert layer(x).dtype is ph.bfloat16


def test_optimizer_steps_are_checked(device: Device) -> None:
    layer = nn.Linear(4, 3, device=device)
    optimizer = ph.optim.SGD(layer.parameters(), lr=1e30)
    (layer(ph.ones((2, 4), device=device)) * 1e30).sum().backward()
    with ph.check("nan"), pytest.raises(NonFiniteError, match=r"\[sgd"):
        optimizer.step()


def bytecodes(call: Callable[[], object]) -> int:
    """How many instructions of the interpreter a call takes that has been made before."""
    call()
    counted = [0]

    def trace(frame: Any, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        counted[0] += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return counted[0]


def test_checks_that_are_off_cost_nothing(numpy_device: Device) -> None:
    x = ph.ones((2,))
    _ = x + x
    before = bytecodes(lambda: x + x)
    with ph.check("nan"):
        _ = x + x
        assert bytecodes(lambda: x + x) > before
    assert bytecodes(lambda: x + x) == before


def test_other_modes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^\[check\] got 'inf'; expected nan, bounds, reference, gradients or all$"):
        ph.check("nan,inf")
    with pytest.raises(
        ValueError, match=r"^\[check\] got no check; expected nan, bounds, reference, gradients or all$"
    ):
        ph.check()


def test_a_step_that_is_only_recorded_cannot_be_checked(numpy_device: Device) -> None:
    @ph.jit(warm_up=False)
    def step() -> Tensor:
        with ph.check("nan"):
            return ph.ones((2,)) + 1

    with pytest.raises(CaptureError, match="results are checked while the step is only being recorded"):
        step()


PROGRAM = """
import polyhal as ph
x = ph.tensor([-1.0], device="numpy")
layer = ph.nn.Sequential(ph.nn.Linear(1, 1, device="numpy"))
layer(x)
x.log()
"""


def test_a_whole_program_is_checked_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    monkeypatch.setenv("POLYHAL_CHECK", "nan,bounds")
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert f"its inputs are finite; at {script}:6: x.log()" in result.stderr
    monkeypatch.setenv("POLYHAL_CHECK", "nans")
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (
        "POLYHAL_CHECK is 'nans'; expected nan, bounds, reference, gradients, separated by commas, or all"
        in result.stderr
    )


def test_uninitialized_memory_is_not_checked(device: Device) -> None:
    ph.full((1000,), float("nan"), device=device)  # its memory is reused
    with ph.check("nan", "reference"):
        ph.empty(1000, device=device)
