"""Optional members: their names, the planner that selects them, and the testing kit that checks them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyhal as ph
from polyhal.backends.numpy.backend import CoreNumpyBackend, array, create
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref
from polyhal.hal.member_names import OPTIONAL_BINARY, OPTIONAL_REDUCE, OPTIONAL_UNARY
from polyhal.hal.ops import OPS
from polyhal.hal.ops.lowering import CoreMember
from polyhal.hal.ops.pointwise.contract_names import MEMBER_NAMES
from polyhal.hal.protocol import REQUIRED_BINARY, REQUIRED_REDUCE, REQUIRED_UNARY
from polyhal.hal.testing import verify


class Offering(CoreNumpyBackend):
    """A backend with the required members and the named ones."""

    def __init__(self, **names: frozenset[str]) -> None:
        super().__init__(create("contiguous_only").info)
        self.capabilities = replace(self.capabilities, **names)
        self.called: set[str] = set()

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        self.called.add(op)
        super().unary(op, x, out)


def _names(arity: int) -> set[str]:
    """Return the names of members that can run elementwise ops with this many inputs."""
    ops = [o for o in OPS if o.family == "elementwise" and len(o.schema.inputs) == arity and o.name != "cast"]
    return {MEMBER_NAMES.get(o.name, o.name) for o in ops if o.strategy(CoreMember)}


def test_the_optional_names_are_the_ones_that_ops_can_use() -> None:
    assert _names(1) - REQUIRED_UNARY == OPTIONAL_UNARY
    assert _names(2) - REQUIRED_BINARY == OPTIONAL_BINARY
    reductions = {o.name for o in OPS if o.family == "reduction" and o.strategy(CoreMember)}
    assert reductions - REQUIRED_REDUCE == OPTIONAL_REDUCE


def test_an_offered_function_runs_as_one_member_and_within_others() -> None:
    backend = Offering(unary=frozenset({"tanh"}))
    device = Device.opened("offering", backend)
    assert "core method tanh" in str(ph.explain("tanh", device))
    x = ph.tensor([0.5, -1.0], device=device)
    np.testing.assert_allclose(ph.tanh(x).numpy(), np.tanh([0.5, -1.0]), rtol=1e-6)
    assert backend.called == {"tanh"}
    ph.nn.functional.tanhshrink(x)
    assert backend.called <= {"tanh", "neg"}
    ph.sigmoid(x)  # not offered: composed
    assert "exp" in backend.called
    assert "sigmoid" not in backend.called


@pytest.mark.parametrize("name", sorted(OPTIONAL_REDUCE))
def test_an_offered_reduction_is_used(name: str) -> None:
    class Reducing(Offering):
        def reduce(self, op: str, x: Ref, out: Ref) -> None:
            self.called.add(op)
            if op in REQUIRED_REDUCE:
                super().reduce(op, x, out)
            else:
                array(out)[...] = getattr(np, op)(array(x) if op != "mean" else array(x).astype(np.float64), axis=-1)

    backend = Reducing(reduce=frozenset({name}))
    device = Device.opened("reducing", backend)
    values: Any = np.array([[1.0, -2.0], [3.0, 0.0]], np.float32)
    values = values > 0 if name in ("any", "all") else values
    result = getattr(ph, name)(ph.tensor(values, device=device), 1)
    np.testing.assert_array_equal(result.numpy(), getattr(np, name)(values, 1))
    assert backend.called == {name}
    assert verify(device, only=f"contract/reduce/{name}").ok


def test_the_kit_checks_every_offered_name_in_every_dtype() -> None:
    report = verify("numpy", only="contract/unary/*")
    assert report.passed == len(Device("numpy").capabilities.unary | REQUIRED_UNARY)


def test_the_kit_finds_a_wrong_offered_name_on_a_device_without_kernels() -> None:
    class WrongTanh(Offering):
        def unary(self, op: str, x: Ref, out: Ref) -> None:
            super().unary(op, x, out)
            if op == "tanh" and out.dtype.name == "float64":
                array(out)[...] += 1e-9

    names = frozenset({"tanh", "cos"})
    report = verify(Device.opened("wrong", WrongTanh(unary=names)), only="contract/unary/*")
    assert [o.id for o in report.failed] == ["contract/unary/tanh"]


def test_the_kit_reports_an_offered_name_that_the_framework_does_not_call() -> None:
    report = verify(Device.opened("typo", Offering(unary=frozenset({"tanhh"}))), only="contract/optional_names")
    assert (
        "Capabilities.unary has 'tanhh', which the framework does not call; did you mean tanh?"
        in report.failed[0].problem
    )
