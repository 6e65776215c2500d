"""Two runs are compared op by op: equal bits, wrong kernels, rounding that grows, and programs that do other things."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import faulty_kernels as faulty
import numpy as np

import polyhal as ph
from polyhal import nn
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.system.checks.modes import observing
from polyhal.hal.system.checks.op_record import OpExecution, OpRecorder, Parting, UncapturedExecutor


def train(device: Device) -> None:
    """A captured training step with random numbers."""
    ph.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 3)).to(device)
    optimizer = ph.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = ph.randn((6, 4), device=device), ph.tensor([0, 1, 2, 0, 1, 2], device=device)

    @ph.jit
    def step() -> ph.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step()


def records(device: Device, program: Any = train, *, references: bool = False) -> list[OpExecution]:
    made: list[OpExecution] = []
    recorder = OpRecorder(made.append, references=references)
    with observing(recorder), dispatch.executing(UncapturedExecutor(dispatch.EAGER)):
        program(device)
    return [OpExecution.from_json(r.as_json()) for r in made]


def compared(a: list[OpExecution], b: list[OpExecution], *, bits: bool) -> list[str]:
    parting = Parting(("one", "two"), bits=bits)
    for x, y in zip(a, b, strict=True):
        if lines := parting.compare(x, y):
            return lines
    return []


def test_the_same_run_twice_gives_the_same_bits(device: Device) -> None:
    first = records(device)
    assert len(first) > 40
    assert compared(first, records(device), bits=True) == []


def test_devices_agree(device: Device) -> None:
    assert compared(records(device, references=True), records(Device("numpy")), bits=False) == []


def softmax(device: Device) -> None:
    x = ph.tensor([[1.0, 2.0]], device=device)
    nn.functional.softmax(x + 1.0, -1)  # here


def test_a_wrong_kernel_is_the_first_to_part() -> None:
    wrong, right = (
        records(d, softmax, references=True) for d in (faulty.opened(faulty.WrongResult()), Device("numpy"))
    )
    lines = compared(wrong, right, bits=False)
    assert lines[0] == "the results diverge at op 2: softmax -> float32[1, 2]; results before it agree within 0"
    assert lines[1].endswith("nn.functional.softmax(x + 1.0, -1)  # here")
    assert lines[2].startswith("  one: 2 of 2 elements of 'out' are wrong, worst at [0, ")
    assert lines[3] == "  two: equal to the reference"


def test_a_race_gives_other_bits() -> None:
    device = faulty.opened(faulty.WrongOnce())
    lines = compared(records(device, softmax), records(device, softmax), bits=True)
    assert lines[0] == "equal inputs produce different bits at op 2: softmax -> float32[1, 2]"
    assert lines[2] == "  one: 7"
    assert lines[3].startswith("  two: 0.268941")


def test_rounding_that_has_grown_is_told_apart(numpy_device: Device) -> None:
    (record,) = records(numpy_device, lambda d: ph.tensor([1.0, 2.0], device=d) + 1.0)
    (other,) = records(numpy_device, lambda d: ph.tensor([1.0, 2.5], device=d) + 1.0)
    lines = compared([record], [other], bits=False)
    assert lines[0].startswith(
        "the results differ by 0.14 of the largest element, by rounding that has grown at op 1: add"
    )


def test_programs_that_draw_data_of_their_own_are_named(numpy_device: Device) -> None:
    runs = [records(numpy_device, lambda d, n=n: ph.tensor([n], device=d) + 1.0) for n in (1.0, 2.0)]
    lines = compared(*runs, bits=True)
    assert lines[0] == "input 0, which no op produced, differs between the runs at op 1: add -> float32[1]"
    assert lines[-1] == "  seed other random sources of the program, and avoid times and unordered sets"


def test_programs_that_do_other_things_part(numpy_device: Device) -> None:
    (record,) = records(numpy_device, lambda d: ph.ones((2,), device=d))
    lines = compared([record], [replace(record, op="exp")], bits=False)
    assert lines[0] == f"the runs execute different ops at op 1: {record.what}"


def test_distances_are_relative_and_equal_nans_are_equal() -> None:
    def record(*values: float) -> OpExecution:
        from polyhal.hal.system.checks.op_record import _sampled

        return OpExecution("add", ("float32[2]",), "", (), (), (_sampled(np.array(values)),))

    assert record(np.nan, 1.0).distance(record(np.nan, 1.0)) == 0
    assert record(np.nan, 1.0).distance(record(0.0, 1.0)) == np.inf
    assert record(np.inf, 1.0).distance(record(np.inf, 2.0)) == 0.5
    assert record(0.0, 3.0).distance(record(0.0, 4.0)) == 0.25
