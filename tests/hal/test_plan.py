"""Resolution of ops, and its explanation by `explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal.backends.numpy.backend import CoreNumpyBackend, create
from polyhal.hal import dtypes
from polyhal.hal.compile.planning.quarantine import EMPTY, QuarantineEntry
from polyhal.hal.compile.planning.resolution import LayoutClass, ResolutionStep
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, FallbackRefusedError
from polyhal.hal.layout import Spec
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.protocol import Declined, Feature, Launch, SimpleLaunch, features_of
from polyhal.hal.system.diagnostics.explain_op import explain
from polyhal.hal.system.discovery.registry import describe


class _Picky(CoreNumpyBackend):
    """A backend that lowers only tanh, and records requests."""

    def __init__(self) -> None:
        super().__init__(create("contiguous_only").info)
        self.asked: list[str] = []

    def lower(
        self, op: str, inputs: tuple[Any, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        self.asked.append(op)
        if op != "tanh":
            return Declined(f"no kernel for {op}")

        def run(x: Any, out: Any, scratch: Any) -> None:
            from polyhal.backends.numpy.backend import array

            assert scratch.nbytes >= 64
            array(out)[...] = np.tanh(array(x))

        return SimpleLaunch("tanh_kernel", run, workspace=(64,))


def test_order_of_resolution() -> None:
    backend = _Picky()
    device = Device.opened("picky", backend)
    x = polyhal.ones((2, 3), device=device)
    np.testing.assert_allclose(x.tanh().numpy(), np.tanh(np.ones((2, 3))), rtol=1e-6)
    assert polyhal.explain("tanh", device, (2, 3)).endswith("tanh(float32[2, 3]): native kernel tanh_kernel")
    text = polyhal.explain("exp", device, (2, 3))
    assert "exp(float32[2, 3]): core method exp" in text
    assert "passed over native kernel: no kernel for exp" in text
    text = polyhal.explain("cosh", device, (2, 3))
    assert "decomposed into 5 ops" in text
    assert "passed over core method: the backend has no cosh" in text
    assert "no kernel for cosh" in text


def test_a_wrong_result_of_lower_is_an_error() -> None:
    backend = create("")
    backend.lower = lambda *args: None  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(BackendError, match="lower returned None; expected a Launch, or Declined with a reason"):
        polyhal.ones((3,), device=Device.opened("broken", backend))


def test_a_workspace_returns_to_the_pool() -> None:
    device = Device.opened("picky", _Picky())
    x = polyhal.ones((2, 3), device=device)
    x.tanh()
    used = device.memory_stats().used
    for _ in range(3):
        x.tanh()
    assert device.memory_stats().used == used


def test_calls_on_empty_tensors_never_reach_a_backend() -> None:
    backend = _Picky()
    device = Device.opened("picky", backend)
    backend.asked.clear()
    assert polyhal.zeros((0, 3), device=device).exp().shape == (0, 3)
    assert polyhal.zeros((0, 3), device=device).sum(axis=0).tolist() == [0.0, 0.0, 0.0]
    out = polyhal.zeros((2, 0), device=device) @ polyhal.zeros((0, 3), device=device)
    assert out.tolist() == [[0.0] * 3] * 2
    assert "exp" not in backend.asked
    assert "matmul" not in backend.asked


def test_views_cost_nothing(device: Device) -> None:
    x = polyhal.ones((4, 6), device=device)
    for view in (
        x.mT,
        x[1:, ::2],
        x.reshape(2, 12) if False else x.reshape((2, 12)),
        x[None],
        x.broadcast_to((3, 4, 6)),
    ):
        assert view.buffer is x.buffer
    assert x.mT.reshape((24,)).buffer is not x.buffer


@pytest.mark.parametrize(
    "op",
    [op for op in OPS if op.tests.samples is not None and dtypes.float32 in op.tests.dtypes],
    ids=lambda op: op.name,
)
def test_explain_describes_a_call_of_the_dtype(op: OpDef) -> None:
    assert op.tests.samples is not None
    operands = [x for s in op.tests.samples(np.random.default_rng(0)) for x in s.inputs if isinstance(x, np.ndarray)]
    call = explain(op.name, "numpy").splitlines()[1]
    assert "float32[" in call or not any(x.dtype.kind == "f" for x in operands), call


@pytest.mark.parametrize("dtype", ["int8", "int32", "bfloat16"])
def test_explain_describes_products_of_the_dtype(dtype: str) -> None:
    assert f"matmul({dtype}[70, 300], {dtype}[300, 40])" in explain("matmul", "numpy", dtype=dtype)


def test_explain_rejects_unknown_ops(device: Device) -> None:
    with pytest.raises(KeyError, match="did you mean softmax"):
        polyhal.explain("sofmax", device)
    for op in ("add", "softmax", "layer_norm", "conv2d", "embedding"):
        assert op in polyhal.explain(op, device)


def test_optional_protocols_are_found_by_their_members() -> None:
    assert features_of(create("")) == (
        Feature.LOWERING | Feature.USER_KERNELS | Feature.PEER_COPY | Feature.MEMORY_IMPORT
    )
    assert Feature.LOWERING not in Device("null").features or features_of(Device("null").backend) & Feature.LOWERING


def test_plans_of_the_same_call_agree_on_every_device(device: Device) -> None:
    rng = np.random.default_rng(5)
    x, w, b = rng.normal(size=(5, 7)), rng.normal(size=(4, 7)), rng.normal(size=(4,))
    tensors = [polyhal.tensor(v.astype(np.float32), device=device) for v in (x, w, b)]
    np.testing.assert_allclose(polyhal.linear(*tensors).numpy(), x @ w.T + b, rtol=2e-5, atol=1e-5)


def test_errors_are_described_in_one_line() -> None:
    assert describe(RuntimeError("two\n  lines")) == "RuntimeError: two lines"
    assert describe(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_plans_of_ever_changing_shapes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device.opened("numpy:bounded", create("contiguous_only"))
    monkeypatch.setattr(type(device.plans), "capacity", 16)
    for n in range(1, 100):
        x = polyhal.arange(0, n, dtype=polyhal.float32, device=device)
        assert (x + x).sum().item() == n * (n - 1)
        assert len(device.plans) <= 16


def test_plans_of_decompositions_count_by_their_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device.opened("numpy:bounded", create("contiguous_only"))
    for cache in (device.plans, device.plans.parts):
        monkeypatch.setattr(type(cache), "capacity", 40)
    for n in range(1, 40):
        x = polyhal.full((n,), 0.5, device=device)
        np.testing.assert_allclose(x.cosh().numpy(), np.cosh(np.full(n, 0.5)), rtol=1e-6)
        assert 0 < sum(1 + len(p.resolution.parts) for p in device.plans.values()) <= 40
        assert 0 < sum(1 + len(p.parts) for _, p in device.plans.parts.values()) <= 40
    device.plans.clear()
    assert not device.plans.parts


def test_a_plan_with_more_ops_than_the_cache_holds_is_the_only_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device.opened("numpy:bounded", create("contiguous_only"))
    monkeypatch.setattr(type(device.plans), "capacity", 4)
    polyhal.full((3,), 0.5, device=device).cosh()
    ((plan,),) = (device.plans.values(),)
    assert len(plan.resolution.parts) > 4


def test_decompositions_share_plans_of_their_parts_until_plans_are_dropped() -> None:
    backend = _Picky()
    device = Device.opened("picky:shared", backend)
    x = polyhal.ones((2, 3), device=device)
    x.cosh()
    before = len(backend.asked)
    assert "exp" in backend.asked
    x.sinh()  # consists of other ops on the same shapes, and some that are also in cosh
    assert "exp" not in backend.asked[before:]
    device.plans.clear()
    x.cosh()
    assert backend.asked.count("exp") == 2


def test_parts_of_every_decomposition_are_recorded() -> None:
    device = Device.opened("numpy:recorded", create("contiguous_only"))
    x = polyhal.ones((2, 3), device=device)
    x.cosh()
    device.planner.record = []
    x.sinh()
    assert "exp" in [r.op for r in device.planner.record]


def test_a_part_that_ran_on_the_host_is_rejected_after_a_policy_change(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device.opened("numpy:without_exp", create("contiguous_only"))
    layouts = tuple(LayoutClass)
    wrong = QuarantineEntry(ResolutionStep.CORE, "exp", "float32", layouts, "wrong", "forward/exp", "2026-01-02")
    device.planner.quarantine = replace(EMPTY, entries=(wrong,))
    x = polyhal.ones((2, 3), device=device)
    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    np.testing.assert_allclose(x.cosh().numpy(), np.cosh(np.ones((2, 3))), rtol=1e-6)
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    with pytest.raises(FallbackRefusedError, match="exp"):
        x.sinh()
