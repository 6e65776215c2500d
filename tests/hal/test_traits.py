"""Traits: properties of ops, part of their declarations."""

from __future__ import annotations

import numpy as np

from polyhal.hal.ops import OPS
from polyhal.hal.ops.traits import Autocast, Trait


def test_every_elementwise_op_is_pointwise_and_no_other_op_is() -> None:
    assert {op.name for op in OPS if Trait.POINTWISE in op.traits} == {op.name for op in OPS if op.promotion}


def test_an_op_that_the_deterministic_setting_changes_is_never_rematerialized() -> None:
    changed = {op.name for op in OPS if "deterministic" in op.settings}
    assert {op.name for op in OPS if Trait.NONDETERMINISTIC in op.traits} == changed | {"host_call"}, (
        "a user's function"
    )


def test_an_op_whose_precision_can_be_set_is_cast_to_half() -> None:
    for op in OPS:
        assert (op.autocast is Autocast.HALF) == ("precision" in op.settings), op


def test_an_op_that_creates_a_tensor_takes_a_device() -> None:
    for op in OPS:
        assert op.creates == ("device" in op.call.__code__.co_varnames), op


def test_a_cheap_op_is_pointwise() -> None:
    assert all(Trait.POINTWISE in op.traits for op in OPS if Trait.CHEAP in op.traits)


def test_the_operands_of_a_commutative_op_may_be_exchanged() -> None:
    x, y = np.array([1.5, -2.0, 0.0, 3.0]), np.array([1.5, 4.0, -1.0, -3.0])
    commutative = [op for op in OPS if Trait.COMMUTATIVE in op.traits]
    assert {"add", "multiply", "maximum", "equal"} <= {op.name for op in commutative}
    for op in commutative:
        np.testing.assert_array_equal(op.reference(x, y), op.reference(y, x), err_msg=op.name)
