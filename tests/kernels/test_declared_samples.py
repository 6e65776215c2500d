"""The hard samples that ops declare, only through native kernels: the conformance kit also accepts decompositions.

Hard cases that hold for any device (long rows, special values, ties, many terms) are samples with a note, so that the
kit checks them on every backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_devices import opencl_devices, wgpu_devices
from native_ops import lower, upload

from polyhal.hal.ops import OPS
from polyhal.hal.ops.traits import Trait
from polyhal.hal.protocol import Declined
from polyhal.hal.system.reference.op_calls import OpCall, expected_results
from polyhal.hal.system.reference.tolerances import check_close
from polyhal.hal.testing.kit.sample_calls import sample_calls
from polyhal.hal.testing.kit.scope import primary

NAMES = sorted(
    {name for native in (*opencl_devices(), *wgpu_devices()) for name in native.ops or ()} & set(OPS.names())
)
CALLS = {
    n: [call for call in sample_calls(OPS[n], primary(OPS[n])) if call.computes and call.sample.note]
    for n in NAMES
    if Trait.POINTWISE not in OPS[n].traits
}
"""Calls by op. Pointwise ops have tests of their own."""


def _check(device: Any, call: OpCall) -> str:
    """Run a call and compare its results with the reference. Returns the reason for which the kernel declines, or ""."""
    refs = [upload(device, v) if isinstance(v, np.ndarray) else v for v in call.values]
    launch, specs = lower(device, call.op.name, refs, call.params)
    if isinstance(launch, Declined):
        return launch.reason
    results = [device.empty(s.dtype, s.shape) for s in specs]
    launch(*refs, *results, *[device.backend.allocate(n) for n in launch.workspace])
    expected = expected_results(call)
    for result, value, bound in zip(results, expected.values, expected.bounds, strict=True):
        check_close(device.download(result), value, result.dtype, bound, str(call))
    return ""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.kernels_of(n)) for n, c in CALLS.items() if c])
def test_hard_samples(device: Any, name: str) -> None:
    reasons = [_check(device, call) for call in CALLS[name]]
    if all(reasons):
        pytest.skip(reasons[0])
