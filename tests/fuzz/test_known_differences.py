"""Each difference from PyTorch that is meant: a program with it, and programs that it does not excuse."""

from __future__ import annotations

import numpy as np
import pytest
from error_cases import ERRORS
from known_case import Case
from value_cases import VALUES

from benchmarks.reliability.programs.agree import INF, NAN, leaf, program_of
from benchmarks.reliability.programs.difference import Difference, Missing, OneError, WrongValue
from benchmarks.reliability.programs.execute import Raised
from benchmarks.reliability.programs.known import KNOWN, explained
from benchmarks.reliability.programs.libraries import Value
from benchmarks.reliability.programs.limits import LIMITS, at_a_limit
from benchmarks.reliability.programs.modes import MODES
from polyhal import Device

pytestmark = pytest.mark.filterwarnings("ignore")

CASES = (*ERRORS, *VALUES)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.name}, {c.text.strip().split(chr(10))[0][:40]}")
def test_a_program_with_the_difference_is_explained_by_it(case: Case, numpy_device: Device) -> None:
    outcome = MODES[case.mode](case.program(), numpy_device)
    assert outcome.known() == {case.name}
    assert not outcome.findings()


def test_each_known_difference_has_a_program() -> None:
    elsewhere = {
        "zeros for no gradient",  # of captured programs
    }
    assert {k.name for k in KNOWN} - elsewhere == {c.name for c in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.name}, {c.text.strip().split(chr(10))[0][:40]}")
def test_a_known_difference_excuses_no_wrong_value_and_no_other_error(case: Case) -> None:
    program = case.program()
    others: list[Difference] = [
        Missing(0, "v1", Value(np.zeros(2), "float32", False)),
        OneError(0, "errors", 0, Raised("ShapeError", "[add] shapes (2,) and (3,) do not fit"), is_ours=True),
        OneError(0, "errors", 0, Raised("RuntimeError", "The size of tensor a (2) must match b (3)"), is_ours=False),
    ]
    if "searchsorted" not in case.text:  # positions of NaN are any
        others.append(_wrong("v1", 1.25, 1.5))
    assert not [str(d) for d in others if explained(program, d)]


def _wrong(name: str, ours: object, theirs: object) -> WrongValue:
    a, b = np.array([ours]), np.array([theirs])
    return WrongValue(0, name, a, b, np.array([[0]]), 2, "float32" if a.dtype.kind == "f" else a.dtype.name)


@pytest.mark.parametrize("name", ["one of several zeros", "the joint of prelu"])
def test_a_gradient_at_zero_that_pytorch_has_on_neither_side_is_not_excused(name: str) -> None:
    program = next(c.program() for c in CASES if c.name == name)
    place = np.zeros((1, program.leaves[0].values.ndim), int)
    assert not explained(program, WrongValue(0, "x1.grad", np.array([0.625]), np.array([1.0]), place, 16, "float32"))


def test_the_sign_of_an_extremum_of_zeros_of_one_sign_is_not_excused() -> None:
    text = "v1 = torch.amax(x1)\nv2 = torch.copysign(x2, v1)"
    for zeros, sign, known in (([-0.0, -0.0], -1.0, False), ([0.0, 0.0], 1.0, False), ([-0.0, 0.0], 1.0, True)):
        program = program_of(text, x1=leaf(zeros, "float32"), x2=leaf([1.0, 1.0], "float32"))
        assert bool(explained(program, _wrong("v2", -sign, sign))) is known


@pytest.mark.parametrize(
    ("divisor", "known"),
    [("F.kl_div(F.log_softmax(x1, -1), F.softmax(x1, -1), reduction='none')", True), ("x1 * 2.0", False)],
)
def test_a_remainder_is_nan_if_the_divisor_cancels_in_only_one_library(divisor: str, known: bool) -> None:
    program = program_of(f"v1 = {divisor}\nv2 = torch.fmod(x1, v1)", x1=leaf([[1.0, 2.0, 1.0, 0.5]], "float32"))
    assert bool(explained(program, _wrong("v2", NAN, -0.0))) is known


def test_unique_of_distant_numbers_has_one_length() -> None:
    text = "v1 = torch.unique(x1)\nv1[:] = x2"
    error = Raised("ShapeError", "[broadcast_to] shape (2,) does not broadcast to (1,)")
    difference = OneError(0, "errors", 1, error, is_ours=True)
    for numbers, known in (([0.1, 0.2], False), ([0.1, 0.1 + 1e-8], True)):
        program = program_of(text, x1=leaf(numbers, "float64"), x2=leaf([1.0, 1.0], "float64"))
        assert bool(explained(program, difference)) is known


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        ("v1 = torch.sin(x1)", NAN, 1.5),
        ("v1 = torch.sin(x1)", 1.5, NAN),
        ("v1 = torch.abs(x1)", NAN, 1.5),
        ("v1 = F.softsign(x1)", NAN, 0.0),
        ("v1 = torch.sin(x1)\nv2 = F.softsign(x1)", 1.5, NAN),
        ("v2 = F.softsign(x2)\nv1 = v2 + x1", 1.5, NAN),
    ],
)
def test_a_limit_is_that_of_its_op_and_of_its_library(text: str, ours: float, theirs: float) -> None:
    program = program_of(text, x1=leaf([INF, NAN], "float32"), x2=leaf([1.0, 2.0], "float32"))
    assert not at_a_limit(program, _wrong("v1", ours, theirs))


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "known"),
    [
        ("v1", NAN, 1.5, True),
        ("v1", 1.5, NAN, False),
        ("v2", NAN, 1.5, False),
        ("x1.grad", NAN, 1.5, True),
    ],
)
def test_zeros_around_an_image_are_multiplied_by_the_weight(name: str, ours: float, theirs: float, known: bool) -> None:
    text = "v1 = F.conv_transpose2d(x1, x2)\nv2 = F.conv2d(x1, x2)\nv2.sum().backward()"
    image = leaf([[[[1.0, 1.0], [1.0, 1.0]]]], "float32", requires_grad=True)
    program = program_of(text, x1=image, x2=leaf([[[[1.0, NAN]]]], "float32"))
    assert at_a_limit(program, _wrong(name, ours, theirs)) is known


def test_numbers_of_ordinary_size_have_no_limit() -> None:
    for limit in LIMITS:
        call = limit.calls.split("|")[0].replace("\\", "").replace("?", "")
        program = program_of(f"v1 = x1 + 1.0  # {call}", x1=leaf([1.0, 2.0], "float32"))
        for pair in ((NAN, 1.5), (1.5, NAN), (1.5, INF)):
            assert not at_a_limit(program, _wrong("x1.grad", *pair))


def test_a_truth_value_is_not_at_a_limit() -> None:
    program = program_of("v1 = torch.sign(x1) > 0.0", x1=leaf([NAN, 1.0], "float32"))
    assert not at_a_limit(program, _wrong("v2", True, False))


def test_one_wrong_element_is_not_excused_by_others() -> None:
    program = program_of("v1 = torch.sign(x1)", x1=leaf([NAN, 1.0], "float32"))
    both = WrongValue(0, "v1", np.array([NAN, 0.5]), np.array([0.0, 1.0]), np.array([[0], [1]]), 2, "float32")
    assert at_a_limit(program, _wrong("v1", NAN, 0.0))
    assert not at_a_limit(program, both)


@pytest.mark.parametrize(
    ("index", "length", "values", "known"),
    [
        (3, 3, [1.0, 1.0000001, 2.0, 3.0], True),
        (-4, 3, [1.0, 1.0000001, 2.0, 3.0], True),
        (4, 4, [1.0, 1.0000001, 2.0, 3.0], False),
        (2, 2, [1.0, 1.0000001, 2.0, 3.0], False),
        (3, 3, [1.0, 2.0, 3.0], False),
    ],
)
@pytest.mark.parametrize("is_ours", [False, True])
def test_rounding_decides_about_an_index_up_to_the_count_of_near_numbers(
    index: int, length: int, values: list[float], known: bool, is_ours: bool
) -> None:
    program = program_of(f"v1 = torch.unique(x1)\nv2 = F.gelu(v1)\nv3 = v2[{index}]", x1=leaf(values, "float32"))
    theirs = f"index {index} is out of bounds for dimension 0 with size {length}"
    message = f"[getitem] index {index} is out of range for axis 0 of length {length}" if is_ours else theirs
    error = OneError(0, "errors", 2, Raised("IndexError", message), is_ours)
    assert bool(explained(program, error)) is known
