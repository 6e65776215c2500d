"""Every op's generated programs compile, for a pretended device. Needs CuPy and NVRTC, but no device."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.layout import ScalarSpec, Spec, contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef

pytest.importorskip("cupy", reason="CuPy is not installed")
try:
    from polyhal_cupy import lowering, program, runtime
except ImportError as error:
    pytest.skip(f"CuPy lacks a library: {error}", allow_module_level=True)

TABLE = lowering.table()
HOPPER = {"major": 9, "minor": 0, "multiProcessorCount": 132, "totalGlobalMem": 80 << 30, "maxThreadsPerBlock": 1024}


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> runtime.Runtime:
    """A runtime that compiles programs and loads none of them."""
    monkeypatch.setenv("POLYHAL_NO_PROGRAM_CACHE", "1")
    monkeypatch.setattr(runtime, "cuda", MagicMock(getDeviceProperties=lambda number: defaultdict(int, HOPPER)))
    monkeypatch.setattr(runtime.cupy.cuda, "Stream", MagicMock())
    monkeypatch.setattr(runtime, "Blas", MagicMock())
    monkeypatch.setattr(program, "Module", MagicMock())
    info = DeviceInfo("cuda", "pretended", DeviceType.GPU, HOPPER["totalGlobalMem"], "", "pretended")
    return runtime.Runtime(0, info)


def _spec(x: Any, dtype: dtypes.DType) -> Spec | ScalarSpec | None:
    if x is None:
        return None
    if isinstance(x, (bool, int, float)):
        return ScalarSpec(dtype)
    array = np.asarray(x)
    return contiguous(dtypes.as_dtype(array.dtype) if array.dtype.kind in "biu" else dtype, array.shape)


def _sampled() -> list[OpDef]:
    return [op for op in OPS if op.name in TABLE and op.tests.samples is not None]


@pytest.mark.parametrize("op", _sampled(), ids=lambda op: op.name)
def test_programs_compile(op: OpDef, pretended: runtime.Runtime) -> None:
    assert op.tests.samples is not None
    dtype = next((d for d in op.tests.dtypes if d is not dtypes.float16), dtypes.float32)
    for sample in op.tests.samples(np.random.default_rng(0))[:2]:
        inputs = tuple(_spec(x, dtype) for x in sample.inputs)
        params = {**op.schema.params, **sample.params}
        outputs = tuple(contiguous(d, shape) for d, shape in op.infer(inputs, params))
        TABLE[op.name](pretended, inputs, outputs, params)
