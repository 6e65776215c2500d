"""The short form of the fuzzer of programs; `python -m benchmarks.reliability fuzz` is the long one."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from devices import TEST_DEVICES

from benchmarks.reliability.programs.agree import assert_agrees, leaf, program_of
from benchmarks.reliability.programs.difference import OneError
from benchmarks.reliability.programs.execute import Raised, run
from benchmarks.reliability.programs.generate import generate
from benchmarks.reliability.programs.judge import Truth, differences
from benchmarks.reliability.programs.known import explained
from benchmarks.reliability.programs.libraries import Polyhal, PyTorch
from benchmarks.reliability.programs.modes import MODES
from benchmarks.reliability.programs.mutations import MUTATIONS, Mutation, hunt, planted
from benchmarks.reliability.programs.ops import families
from benchmarks.reliability.programs.reduce import as_test, reduced
from benchmarks.reliability.programs.trace import trace
from benchmarks.reliability.programs.worker import one
from benchmarks.reliability.programs.workers import results
from polyhal import Device

pytestmark = pytest.mark.filterwarnings("ignore")
DEVICES = [d for d in TEST_DEVICES if d in ("numpy", "opencl", "wgpu") or d.startswith("opencl:")]
SEEDS = [(d, range(n, n + 10)) for d in DEVICES if d == "numpy" for n in range(0, 120, 10)]
SEEDS += [(d, range(n, n + 2)) for d in DEVICES if d != "numpy" for n in range(0, 10, 2)]
"""Devices and seeds of the programs that run there: fewer on devices that build kernels."""


@pytest.fixture(autouse=True)
def _host_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs may use linear algebra, which runs on the host."""
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")


@pytest.mark.parametrize(("name", "seeds"), SEEDS, ids=str)
def test_random_programs_agree_with_pytorch(name: str, seeds: range) -> None:
    found = [text for seed in seeds for text in one(seed, Device(name))["findings"]]
    assert not found, "\n".join(found)


def test_a_seed_is_one_program() -> None:
    for seed in range(5):
        texts = [[s.text for s in generate(seed).statements] for _ in range(2)]
        assert texts[0] == texts[1]


def test_a_program_ends_before_a_statement_that_relied_on_a_rejected_one() -> None:
    program = generate(2010119)
    assert len(program.statements) > 5
    assert run(program, PyTorch())[0].end is None


def test_programs_are_of_all_families_and_of_five_to_sixty_statements() -> None:
    programs = [generate(seed) for seed in range(150)]
    ops = {s.op for p in programs for s in p.statements}
    for name, calls in families().items():
        assert len(ops & {c.op for c in calls}) > len({c.op for c in calls}) // 2, name
    assert {
        "write",
        "write a slice",
        "backward",
        "grad",
        "hook",
        "checkpoint",
        "optimizer",
        "mistake",
        "several uses",
    } <= ops
    assert max(len(p.statements) for p in programs) > 50


def test_a_program_without_faults_differs_from_nothing() -> None:
    program = generate(3)
    assert not differences(Truth(program), run(program, PyTorch()))


@pytest.mark.parametrize("mutation", [MUTATIONS[0], MUTATIONS[4]], ids=lambda m: m.name)
def test_a_planted_fault_is_found_and_reduced(mutation: object, numpy_device: Device) -> None:
    assert isinstance(mutation, type(MUTATIONS[0]))
    found = hunt(mutation, numpy_device, 400)
    assert found.program is not None

    def fails(program: object) -> bool:
        assert isinstance(program, type(found.program))
        with planted(mutation, numpy_device):
            return bool(differences(Truth(program), run(program, Polyhal(numpy_device))))

    small = reduced(found.program, fails, 400)
    assert len(small.statements) <= 6
    assert as_test(small).startswith("def test_")


@pytest.mark.parametrize(
    ("mutation", "text"),
    [
        (MUTATIONS[-2], "o1 = optim.Adam([p1], lr=0.05)\nv1 = (p1 * p1).sum()\nv1.backward()\no1.step()"),
        (MUTATIONS[-1], "x2[0:] = x1[0:]\nx1.add_(1.0)"),
    ],
    ids=["replays", "compiled graphs"],
)
def test_a_planted_fault_of_a_mode_shows_in_that_mode(mutation: Mutation, text: str, numpy_device: Device) -> None:
    leaves = {f"x{n}": leaf([[1.0, n], [3.0, 4.0]], "float32") for n in (1, 2)}
    program = program_of(text, p1=leaf([0.5, 2.0], "float32", requires_grad=True), **leaves).without_unused_leaves()
    mode = MODES[mutation.mode]
    assert not mode(program, numpy_device).differences
    with planted(mutation, numpy_device):
        assert {d.kind for d in mode(program, numpy_device).differences} == {"value"}


@pytest.mark.slow
def test_a_process_that_dies_is_a_finding_with_its_mode_and_program() -> None:
    (result,) = results("no such device", iter([3]), jobs=1)
    (finding,) = result["findings"]
    assert finding.startswith("seed 3, start: the process ended with exit code 1")
    assert "no such device" in finding
    assert "def test_the_program_of_seed_3(" in finding


def test_captured_results_of_no_elements_are_returned(device: Device) -> None:
    assert_agrees(
        device,
        """
        v1, v2 = torch.aminmax(p0, dim=-2)
        v1.index_fill_(0, torch.tensor([0, 1]), 0.25)
        v10, v11 = [part.clone() for part in torch.split(x3, 2, -4)]
        """,
        "captured forward",
        p0=leaf(np.ones((3, 2)), "float32", requires_grad=True),
        x3=leaf(np.ones((3, 2, 2, 0)), "float32"),
    )


def test_a_wrong_value_is_reported_with_its_place() -> None:
    program = program_of("v1 = torch.sin(x1)\nv2 = v1[1:]\nv2.mul_(2.0)", x1=leaf([0.5, 1.0, 2.0], "float32"))
    seen = run(program, PyTorch())
    wrong = seen[0].values["v1"].array
    wrong[2] += 1e-3
    (difference,) = differences(Truth(program), seen)
    assert (difference.name, difference.kind) == ("v1", "value")
    assert "at [2]" in str(difference)


def test_ties_are_not_judged_and_nothing_else_is_forgiven() -> None:
    text = "v1 = (x1 * 3.0) / 3.0\nv2 = torch.floor(v1)"
    program = program_of(text, x1=leaf([0.3, 1.0, 7.0], "float32"))
    seen = run(program, PyTorch())
    seen[0].values["v2"].array[1] = 0.0  # 1.0 may be a little less on a device
    assert not differences(Truth(program), seen)
    seen[0].values["v2"].array[0] = 1.0  # 0.3 is far from 1
    assert [d.name for d in differences(Truth(program), seen)] == ["v2"]


def test_an_error_in_one_library_alone_is_a_difference(numpy_device: Device) -> None:
    program = program_of("v1 = torch.sin(x1)\nv1[5]", x1=leaf([0.5], "float32"))
    seen = run(program, Polyhal(numpy_device))
    assert not differences(Truth(program), seen)
    with contextlib.suppress(KeyError):
        del seen[0].raised[1]
    assert [d.kind for d in differences(Truth(program), seen)] == ["does not raise"]


def test_errors_of_mistakes_are_judged_one_by_one(numpy_device: Device) -> None:
    text = """
    with raising(1000):
        x1[5]
    v1 = F.tanhshrink(x1)
    with raising(1002):
        x1.reshape(7)
    v1.sum().backward()
    """
    program = program_of(text, x1=leaf([0.5, 1.0], "float32", requires_grad=True))
    seen = run(program, Polyhal(numpy_device))
    assert list(seen[0].raised) == [0, 2]
    assert not differences(Truth(program), seen)
    del seen[0].raised[0]
    seen[0].raised[1] = Raised("AutogradError", "[tanhshrink] 'x' was changed in place after it was saved")
    found = differences(Truth(program), seen)
    assert [(d.position, d.is_ours) for d in found if isinstance(d, OneError)] == [(0, False), (1, True)]
    assert [bool(explained(program, d)) for d in found] == [False, True]


def test_errors_after_the_end_of_a_call_in_one_library_are_not_judged() -> None:
    text = "v1 = torch.sin(x1)\nv2 = v1.sum()\nwith raising(1001):\n    x1[5]"
    program = program_of(text, x1=leaf([0.5], "float32"))
    seen = run(program, PyTorch())
    seen[0].raised, seen[0].end = {1: Raised("ShapeError", "")}, 1
    (found,) = differences(Truth(program), seen)
    assert isinstance(found, OneError)
    assert (found.position, found.is_ours) == (1, True)


def test_a_second_backward_pass_that_pytorch_refuses_is_judged_by_its_values(numpy_device: Device) -> None:
    program = program_of(
        "v1 = (x1 * 0.5).sum()\nv1.backward()\nv1.backward()", x1=leaf([1.0, 2.0], "float32", requires_grad=True)
    )
    seen = run(program, Polyhal(numpy_device))
    assert not differences(Truth(program), seen)
    seen[0].values["x1.grad"].array[1] = 0.5
    assert [(d.name, d.kind) for d in differences(Truth(program), seen)] == [("x1.grad", "value")]


def test_a_trace_follows_writes_views_and_gradients() -> None:
    text = """
    v1 = torch.sin(x1)
    v2 = v1[1:]
    v3 = torch.cos(x2)
    v2.copy_(v3[1:])
    v4 = torch.exp(x2)
    v5 = v1.sum()
    v5.backward()
    """
    leaves = {n: leaf([1.0, 2.0], "float32", requires_grad=n == "x1") for n in ("x1", "x2")}
    steps = trace(program_of(text, **leaves), 0)
    for name in ("v1", "v5", "x1.grad"):
        behind = [s.text for s in steps.behind(name)]
        assert "v3 = torch.cos(x2)" in behind
        assert "v4 = torch.exp(x2)" not in behind
    assert [s.text for s in steps.behind("v4")] == ["v4 = torch.exp(x2)"]


def test_a_leaf_of_several_uses_has_the_sum_of_its_gradients(device: Device) -> None:
    text = "v1 = ((torch.sin(p1) + torch.cos(p1) + p1) ** 2).sum()\nv1.backward()"
    assert_agrees(device, text, p1=leaf([1.0, 2.0, 3.0], "float32", requires_grad=True))


def test_an_axis_without_elements_has_as_many_chunks_as_asked_for(device: Device) -> None:
    assert_agrees(device, "v1, v2 = torch.chunk(x1, 2, 1)", x1=leaf([[], []], "float32"))


def test_a_captured_checkpoint_is_differentiated_outside(device: Device) -> None:
    assert_agrees(
        device,
        """
        v1 = torch.utils.checkpoint.checkpoint(lambda x1, x2, x3: F.bilinear(x1, x2, x3), x1, x2, x3, use_reentrant=False)
        """,
        "captured forward",
        x1=leaf([[1.0, 2.0]], "float32"),
        x2=leaf([[3.0]], "float32", requires_grad=True),
        x3=leaf([[[4.0], [5.0]]], "float32"),
    )


def test_counts_are_of_their_call(numpy_device: Device) -> None:
    text = "m1 = made(nn.BatchNorm1d(2), 1)\nv1 = m1(x1)"
    assert_agrees(numpy_device, text, "captured forward", x1=leaf([[1.0, 2.0], [3.0, 5.0]], "float32"))


def test_a_write_to_a_broadcast_gradient_is_known_in_captured_programs(numpy_device: Device) -> None:
    text = "v1 = p1.mean()\nv2 = torch.autograd.grad(v1, p1)[0]\nv2[torch.tensor([0])] += 1.0"
    assert_agrees(numpy_device, text, "captured", p1=leaf([[1.0, 2.0], [3.0, 4.0]], "float32", requires_grad=True))
