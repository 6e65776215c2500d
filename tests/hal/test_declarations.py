"""Declarations of ops: schemas, strategies, options and the registry."""

from __future__ import annotations

import pkgutil
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal.hal import ops
from polyhal.hal.device import Device
from polyhal.hal.layout import View
from polyhal.hal.ops import OPS
from polyhal.hal.ops.declare import (
    REQUIRED,
    AsView,
    Decompose,
    OpFunction,
    OutputRegion,
    Regions,
    Sample,
    Schema,
    Tolerance,
    declare,
    first_tensor,
)
from polyhal.hal.ops.layout.views import infer_same
from polyhal.hal.ops.pointwise.contract_names import MEMBER_NAMES, OP_NAMES
from polyhal.hal.protocol import REQUIRED_BINARY, REQUIRED_UNARY


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove ops declared by a test after it."""
    monkeypatch.setattr(OPS, "_ops", dict(OPS._ops))


def _twice(x: Any, y: Any, *, count: Any, scale: float = 2.0) -> Any:
    """Return `x` times `scale`."""
    return np.asarray(x) * scale


def test_a_schema_is_derived_from_the_reference() -> None:
    schema = Schema.of(_twice)
    assert (schema.inputs, schema.optional, schema.variadic) == (("x", "y"), frozenset(), False)
    assert schema.params == {"count": REQUIRED, "scale": 2.0}
    assert Schema.of(lambda x, bias=None: x).optional == {"bias"}
    assert Schema.of(lambda *xs, axis=0: xs).variadic
    assert not schema.returns_tuple
    assert Schema.of(_twice, mutates=(0,)).returns_tuple


def test_a_declared_op_has_the_name_doc_and_signature_of_its_reference() -> None:
    function = declare(
        _twice, name="twice", family="test", infer=infer_same, lowering=Decompose(lambda x, y, **_: x * 2)
    )
    assert OPS["twice"].call is function
    assert function.op is OPS["twice"]
    assert function.__doc__ == "Return `x` times `scale`."
    x = polyhal.ones((3,), device="numpy")
    assert function(x, x, count=1).tolist() == [2, 2, 2]
    with pytest.raises(TypeError, match="count"):
        function(x, x)


def test_a_misspelt_option_is_rejected() -> None:
    with pytest.raises(TypeError, match="op twice: unknown options tolerence"):
        declare(_twice, name="twice", family="test", infer=infer_same, tolerence=Tolerance(0.0))  # type: ignore[call-arg]
    assert "twice" not in OPS


def test_a_name_is_declared_once() -> None:
    with pytest.raises(ValueError, match="'add' is declared twice"):
        declare(_twice, name="add", family="test", infer=infer_same)


def test_inputs_must_not_be_named_like_gradients_or_outputs() -> None:
    with pytest.raises(ValueError, match="clash"):
        declare(lambda g: g, name="clashing", family="test", infer=infer_same)
    with pytest.raises(ValueError, match="clash"):
        declare(lambda out: out, name="clashing", family="test", infer=infer_same)


def test_a_required_parameter_must_not_follow_an_optional_input() -> None:
    with pytest.raises(ValueError, match="op late: a required parameter follows the optional inputs"):
        declare(lambda x, bias=None, *, axis: x, name="late", family="test", infer=infer_same)


def test_a_gradient_rule_saves_the_values_that_it_names() -> None:
    rule = OPS["layer_norm"].gradient
    assert rule is not None
    assert rule.needs == ("g", "x", "weight", "mean", "rstd", "bias_spec")
    assert rule.params == ("axes",)
    assert rule.saved[0b001][:2] == ((("x", 0), ("weight", 1)), (("mean", 1), ("rstd", 2)))
    assert rule.saved[0b100][:2] == ((), ())
    assert [i for _, i in rule.saved[0b001].others] == [2]  # the decomposition may read the bias


def _reversed(fallback: Any) -> OpFunction:
    """Declare an op that is a view for vectors and not for matrices."""
    return declare(
        lambda x: np.asarray(x)[::-1],
        name="reversed",
        family="test",
        infer=infer_same,
        lowering=(
            AsView(lambda spec, params: View(spec.shape, (-1,), spec.size - 1) if spec.ndim == 1 else None),
            fallback,
        ),
        samples=lambda rng: [Sample((rng.uniform(-1, 1, 3),))],
    )


def test_strategies_are_tried_in_order() -> None:
    regions = Regions(lambda specs, outs, params: [OutputRegion(View(outs[0].shape, outs[0].strides), 0)])
    function, device = _reversed(regions), Device("numpy:contiguous_only")
    assert function(polyhal.tensor([1.0, 2.0, 3.0], device=device)).tolist() == [3, 2, 1]
    assert function(polyhal.tensor([[1.0], [2.0]], device=device)).tolist() == [[1], [2]]
    ways = {plan.resolution.how for key, plan in device.plans.items() if key[0] is function.op}
    assert ways == {"view", "1 core fills and copies"}


def test_an_op_without_a_strategy_that_applies_runs_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    function, device = _reversed(Decompose(lambda x: x)), Device("numpy:contiguous_only")
    bare = replace(function.op, name="bare", lowering=(), tests=function.op.tests)
    assert bare.view is None
    assert bare.decompose is None
    assert bare.call(polyhal.tensor([[1.0], [2.0]], device=device)).tolist() == [[2], [1]]


def test_every_module_of_ops_is_imported_without_being_listed() -> None:
    names = [m.name for m in pkgutil.walk_packages(ops.__path__, f"{ops.__name__}.")]
    assert len(names) > 40
    assert [n for n in names if n not in sys.modules] == []


def test_names_of_contract_members_lead_to_ops_and_back() -> None:
    assert set(OP_NAMES) <= REQUIRED_UNARY | REQUIRED_BINARY | {"min", "hypot"}
    for member, op in OP_NAMES.items():
        assert MEMBER_NAMES[op] == member
        assert op in OPS


def test_rules_reject_inputs_that_are_not_tensors() -> None:
    with pytest.raises(TypeError, match="input 0 is absent; expected a tensor"):
        first_tensor((None,))
