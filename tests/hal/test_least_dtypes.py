"""The testing kit on a device with only the required dtypes, and its errors for devices that violate these rules."""

from __future__ import annotations

import numpy as np
import pytest
from op_patches import patch_lowering

from polyhal.backends.numpy.backend import CoreNumpyBackend, create
from polyhal.hal import dtypes
from polyhal.hal.core.dispatch import apply
from polyhal.hal.device import Device
from polyhal.hal.errors import FallbackRefusedError
from polyhal.hal.layout import Ref
from polyhal.hal.ops import OPS
from polyhal.hal.ops.declare import Decompose
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.testing import Scope, verify
from polyhal.hal.testing.kit.core_only import core_only
from polyhal.hal.testing.kit.input_layouts import InputLayout, place_input


@pytest.mark.parametrize("kinds", [("contract", "forward", "errors"), ("gradient", "second_order")])
def test_a_device_of_three_dtypes_passes_the_kit(kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        report = verify("numpy:small", scope=Scope(small=True), only=f"{kind}/*")
        assert report.ok, report.failed[0].problem
        assert report.passed


@pytest.mark.parametrize("missing", sorted(dtypes.REQUIRED, key=lambda d: d.name))
def test_the_kit_names_a_required_dtype_that_is_missing(missing: dtypes.DType) -> None:
    backend = CoreNumpyBackend(create("").info, missing=frozenset({missing}))
    report = verify(Device.opened("lacking", backend), only="contract/identity")
    assert f"{missing.name} must be in storage and in compute" in report.failed[0].problem


def test_results_in_int32_are_checked_if_int64_is_missing() -> None:
    """Indices have another dtype on this device than the op rules specify."""
    report = verify("numpy:small", scope=Scope(small=True), only="forward/argmax/float32")
    assert report.ok
    assert report.passed == 1


def test_a_decomposition_through_a_dtype_that_is_not_stored_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    op: OpDef = OPS["square"]
    patch_lowering(monkeypatch, op, Decompose(lambda x: (x.cast(dtype=dtypes.int16) * 2).cast(dtype=x.dtype)))
    monkeypatch.setenv("POLYHAL_FALLBACK", "error")
    reduced = core_only(Device("numpy"), dtypes.REQUIRED)
    x = place_input(np.ones(3, np.float32), InputLayout.CONTIGUOUS, reduced)
    with pytest.raises(FallbackRefusedError, match="it needs int16, which the device does not store"):
        apply(op, (x,), (), reduced)


def test_the_reduced_device_rejects_a_dtype_that_it_does_not_store() -> None:
    reduced = core_only(Device("numpy"), dtypes.REQUIRED)
    x = place_input(np.ones(3, np.float32), InputLayout.CONTIGUOUS, reduced)
    wrong = Ref(x.ref.handle, x.ref.spec._replace(dtype=dtypes.float64), 0)
    with pytest.raises(AssertionError, match="a dtype in `storage`"):
        reduced.backend.fill(0, wrong)
    with pytest.raises(AssertionError, match="whose dtype the device does not store"):
        Device("numpy:small").backend.fill(0, wrong)
