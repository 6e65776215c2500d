"""A fusion is one declaration: ops that a test declares are fused, with neither a new pass nor a change of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal import capture
from polyhal.hal.compile.passes.fuse.epilogues import fuse_epilogues
from polyhal.hal.compile.passes.fuse.patterns import match_patterns
from polyhal.hal.compile.passes.pipeline import optimize
from polyhal.hal.ops.declare import OPS, Decompose, OpFunction, Params, Specs, declare
from polyhal.hal.ops.fusion import ANY_NUMBER, EpiloguePattern, Pattern
from polyhal.hal.ops.layout.views import infer_same
from polyhal.hal.ops.pointwise.activation import relu
from polyhal.hal.ops.pointwise.arithmetic import square
from polyhal.hal.ops.pointwise.fused_elementwise import reference_steps

from .golden import check
from .rich_device import rich_device

F = ph.functions


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops that a test declares are gone after it."""
    monkeypatch.setattr(OPS, "_ops", dict(OPS._ops))


def _shifted_square(x: Any, *, shift: float) -> Any:
    return np.square(np.tanh(x) + shift)


def _declare_squared_relu(**options: Any) -> OpFunction:
    return declare(
        lambda x: np.square(np.maximum(x, 0)),
        name="demo_squared_relu",
        family="test",
        infer=infer_same,
        lowering=Decompose(lambda x: square(relu(x))),
        **options,
    )


def _one_operand(out: Any) -> list[tuple[Specs, Params]]:
    return [((out,), {})]


WRITTEN_OUT = """
    %0: float32[2, 3]
    on it
    %1 = relu(%0): float32[2, 3]
    %2 = multiply(%1, %1): float32[2, 3]
    return %2
    """
FUSED = """
    %0: float32[2, 3]
    on it
    %1 = demo_squared_relu(%0): float32[2, 3]
    return %1
    """


def test_a_declared_op_is_fused_where_its_decomposition_is_written_out() -> None:
    _declare_squared_relu(fuses=Pattern(_one_operand))
    check(match_patterns, WRITTEN_OUT, FUSED)


def test_an_op_without_a_pattern_is_not_rewritten() -> None:
    _declare_squared_relu()
    check(match_patterns, WRITTEN_OUT, WRITTEN_OUT)


def test_a_device_without_a_kernel_for_a_declared_op_keeps_the_formula() -> None:
    _declare_squared_relu(fuses=Pattern(_one_operand))
    check(match_patterns, WRITTEN_OUT, WRITTEN_OUT, rich_device("demo_squared_relu"))


def test_an_alternative_form_of_a_declared_op_is_fused() -> None:
    _declare_squared_relu(fuses=Pattern(_one_operand), spellings=[lambda x: F.where(x > 0, x, 0.0) ** 2])
    before = """
        %0: float32[2, 3]
        on it
        %1 = greater(%0, 0): bool[2, 3]
        %2 = where(%1, %0, 0.0): float32[2, 3]
        %3 = square(%2): float32[2, 3]
        return %3
        """
    check(match_patterns, before, FUSED)


def test_a_number_is_read_off_the_formula() -> None:
    declare(
        _shifted_square,
        family="test",
        name="shifted_square",
        infer=infer_same,
        lowering=Decompose(lambda x, shift: square(F.tanh(x) + shift)),
        fuses=Pattern(lambda out: [((out,), {"shift": ANY_NUMBER})]),
    )
    before = """
        %0: float32[2, 3]
        on it
        %1 = tanh(%0): float32[2, 3]
        %2 = add(0.25, %1): float32[2, 3]
        %3 = multiply(%2, %2): float32[2, 3]
        return %3
        """
    after = """
        %0: float32[2, 3]
        on it
        %1 = shifted_square(%0, shift=0.25): float32[2, 3]
        return %1
        """
    check(match_patterns, before, after)


def test_a_declared_op_takes_over_the_chain_after_its_root() -> None:
    def reference(x: Any, *operands: Any, axis: Any, steps: Any = (), numbers: Any = ()) -> Any:
        return reference_steps([OPS["softmax"].reference(x, axis=axis), *operands, *numbers], steps)[-1]

    declare(
        reference,
        name="fused_softmax",
        family="test",
        infer=lambda specs, params: infer_same(specs[:1], {}),
        fuses=EpiloguePattern("softmax", {}, max_steps=2, max_operands=1),
    )
    before = """
        %0: float32[2, 3]
        %1: float32[3]
        on it
        %2 = softmax(%0, axis=1): float32[2, 3]
        %3 = multiply(%2, %1): float32[2, 3]
        %4 = add(%3, 0.5): float32[2, 3]
        %5 = tanh(%4): float32[2, 3]
        return %5
        """
    after = """
        %0: float32[2, 3]
        %1: float32[3]
        on it
        %2 = fused_softmax(%0, %1, axis=1, steps=(('multiply', (0, 1), ()), ('add', (3, 2), ())), numbers=(0.5,)): float32[2, 3]
        %3 = tanh(%2): float32[2, 3]
        return %3
        """
    check(fuse_epilogues, before, after)


def _declare_fused_rms_norm() -> None:
    def reference(
        x: Any, weight: Any, *operands: Any, axes: int, eps: float, steps: Any = (), numbers: Any = ()
    ) -> Any:
        return reference_steps(
            [OPS["rms_norm"].reference(x, weight, axes=axes, eps=eps)[0], *operands, *numbers], steps
        )[-1]

    declare(
        reference,
        name="fused_rms_norm",
        family="test",
        infer=lambda specs, params: infer_same(specs[:1], {}),
        fuses=EpiloguePattern("rms_norm", {}, max_steps=2, max_operands=1),
    )


RMS_NORM = """
    %0: float32[2, 3]
    %1: float32[3]
    on it
    %2, %3 = rms_norm(%0, %1, axes=1, eps=1e-05, out_dtype=None): float32[2, 3], float32[2]
    %4 = tanh(%2): float32[2, 3]
    return %4{also}
    """


def test_a_root_with_several_results_is_fused_if_only_the_first_is_used() -> None:
    _declare_fused_rms_norm()
    after = """
        %0: float32[2, 3]
        %1: float32[3]
        on it
        %2 = fused_rms_norm(%0, %1, axes=1, eps=1e-05, steps=(('tanh', (0,), ()),), numbers=()): float32[2, 3]
        return %2
        """
    check(fuse_epilogues, RMS_NORM.format(also=""), after)


def test_a_root_whose_other_results_are_used_is_not_fused() -> None:
    _declare_fused_rms_norm()
    graph = RMS_NORM.format(also=", %3")
    check(fuse_epilogues, graph, graph)


def test_a_whole_captured_step_runs_the_declared_op() -> None:
    _declare_squared_relu(fuses=Pattern(_one_operand))
    x = np.random.default_rng(0).uniform(-1, 1, (4, 5)).astype(np.float32)
    tensor = ph.Tensor(x, device=rich_device())
    with capture() as step:
        result = tensor.relu() ** 2
    assert [n.op.name for n in optimize(step.graph).nodes] == ["demo_squared_relu"]
    np.testing.assert_array_equal(result.numpy(), np.square(np.maximum(x, 0)))
