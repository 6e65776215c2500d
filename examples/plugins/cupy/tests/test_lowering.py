"""Lowering of every op on a fake device: programs that compile, and launches that fit their kernels.

Requires CuPy and NVRTC, but no device.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.kernel_arguments import KernelArgumentError
from polyhal.backends.common.launching.kernel_signature import NUMPY_TYPES, KernelSignature
from polyhal.backends.common.launching.launch import Tensor, Workspace
from polyhal.hal import dtypes
from polyhal.hal.capabilities import DeviceInfo, DeviceType
from polyhal.hal.layout import Ref, ScalarSpec, Spec, contiguous
from polyhal.hal.ops import OPS
from polyhal.hal.ops.opdef import OpDef
from polyhal.hal.ops.samples import Sample
from polyhal.hal.protocol import Declined

pytest.importorskip("cupy", reason="CuPy is not installed")
try:
    from polyhal_cupy import lowering, program, runtime
except ImportError as error:
    pytest.skip(f"CuPy lacks a library: {error}", allow_module_level=True)

TABLE = lowering.table()
HOPPER = {"major": 9, "minor": 0, "multiProcessorCount": 132, "totalGlobalMem": 80 << 30, "maxThreadsPerBlock": 1024}


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> runtime.Runtime:
    """Return a runtime that compiles programs without loading them."""
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


# --- arguments ------------------------------------------------------------------------------------------------------


class Enqueued:
    """Replaces a runtime's compiler and queue. `launches` holds the kernel and the values of each launch."""

    def __init__(self, device: runtime.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launches: list[tuple[KernelSignature, list[Any]]] = []
        self.programs: dict[str, set[str]] = defaultdict(set)
        """Names of all definitions, by file."""
        self._programs = device.programs
        monkeypatch.setattr(device.programs, "function", self._function)
        monkeypatch.setattr(device, "enqueue", self._enqueue)

    def _function(self, source: str, name: str, definitions: Definitions) -> KernelSignature:
        self.programs[source] |= {key.partition("(")[0] for key in definitions}
        return self._programs.signature(source, name, definitions)

    def _enqueue(self, name: str, function: KernelSignature, blocks: Any, threads: Any, values: list[Any]) -> None:
        self.launches.append((function, values))


@pytest.fixture
def enqueued(pretended: runtime.Runtime, monkeypatch: pytest.MonkeyPatch) -> Enqueued:
    return Enqueued(pretended, monkeypatch)


def _transposed(spec: Any) -> Any:
    """Return the spec of a tensor of this shape, stored with its axes in reverse order."""
    if not isinstance(spec, Spec):
        return spec
    return spec._replace(strides=contiguous(spec.dtype, spec.shape[::-1]).strides[::-1])


def _problems(op: OpDef) -> Iterator[tuple[Sample, tuple[Any, ...], tuple[Spec, ...], dict[str, Any]]]:
    """Yield every sample in every dtype: with contiguous and transposed inputs, outputs, and all parameters."""
    assert op.tests.samples is not None
    for dtype in op.tests.dtypes:
        for sample in op.tests.samples(np.random.default_rng(0)):
            inputs = tuple(_spec(x, dtype) for x in sample.inputs)
            params = {**op.schema.params, **sample.params}
            try:
                outputs = tuple(contiguous(d, shape) for d, shape in op.infer(inputs, params))
            except ValueError:  # a sample that other dtypes cannot represent
                continue
            if all(o.size for o in outputs):
                yield sample, inputs, outputs, params
                yield sample, tuple(map(_transposed, inputs)), outputs, params


def _call(
    op: OpDef, device: runtime.Runtime, problem: tuple[Sample, tuple[Any, ...], tuple[Spec, ...], dict[str, Any]]
) -> None:
    """Lower an op and call its launch, with memory that is never read."""
    sample, inputs, outputs, params = problem
    launch = TABLE[op.name](device, inputs, outputs, params)
    if isinstance(launch, Declined):
        return
    scalars = (*sample.inputs, *outputs)
    specs = (*inputs, *outputs)
    args = [Ref(1 << 32, s, 3) if isinstance(s, Spec) else x for s, x in zip(specs, scalars, strict=True)]
    launch(*args, *(2 << 32 for _ in launch.workspace))


@pytest.mark.parametrize("op", _sampled(), ids=lambda op: op.name)
def test_launches_fit_their_kernels(op: OpDef, pretended: runtime.Runtime, enqueued: Enqueued) -> None:
    """Every parameter is bound by name to a value of its type, without surplus values."""
    for problem in _problems(op):
        _call(op, pretended, problem)
    for signature, values in enqueued.launches:
        for p, value in zip(signature.parameters, values, strict=True):
            if p.kind == "struct":
                assert value.dtype == signature.structs[p.name], (signature.kernel, p.name)
            else:
                assert type(value) is (int if p.type is None else NUMPY_TYPES[p.type]), (signature.kernel, p.name)


@pytest.mark.parametrize("op", _sampled(), ids=lambda op: op.name)
def test_kernels_read_every_definition(op: OpDef, pretended: runtime.Runtime, enqueued: Enqueued) -> None:
    """A definition under a wrong name would leave the kernel with its default, for example of another dtype."""
    for problem in _problems(op):
        _call(op, pretended, problem)
    for file, names in enqueued.programs.items():
        text = re.sub(r"//[^\n]*", "", program.SourceFolder(program.KERNELS).assemble(file, {}))
        assert not [name for name in names if not re.search(rf"\b{name}\b", text)], file


def test_numbers_are_converted_as_in_c(pretended: runtime.Runtime, enqueued: Enqueued) -> None:
    """A number of each call wraps to the parameter's type."""
    out = contiguous(dtypes.float32, (8,))
    launch = TABLE["uniform"](pretended, (ScalarSpec(dtypes.int64), ScalarSpec(dtypes.int64)), (out,), {})
    assert not isinstance(launch, Declined)
    launch(-1, 1 << 64, Ref(4096, out, 2))
    ((signature, values),) = enqueued.launches
    assert [p.name for p in signature.parameters] == ["out", "size", "seed", "offset"]
    assert values == [4096 + 2 * 4, 8, 2**64 - 1, 0]


def test_arguments_that_do_not_fit_are_errors(pretended: runtime.Runtime) -> None:
    args = {"index": Tensor(0), "x": Tensor(1), "out": Workspace(2), "items": 1, "width": 1, "rows": 1, "index_step": 1}
    with pytest.raises(KernelArgumentError, match=r"\[gather\] the argument 'x_row' is missing; .*gather/gather.cu"):
        pretended.launch("gather", "gather/gather", {}, args, 1, 256)
    with pytest.raises(KernelArgumentError, match=r"'rows' is 1.5; expected a number of the type ulong"):
        pretended.launch("gather", "gather/gather", {}, args | {"x_row": 1, "x_column": 1, "rows": 1.5}, 1, 256)
