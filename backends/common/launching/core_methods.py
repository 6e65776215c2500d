"""The arithmetic methods of the contract, on top of a backend's launch builders. Launches are cached by their specs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from polyhal.backends.common.codegen.elementwise import GroupGenerator, lower_core
from polyhal.hal.core.execution.op_plan import BoundedCache
from polyhal.hal.core.execution.runtime_scalars import DerivedScalar, RuntimeScalar
from polyhal.hal.dtypes import DType
from polyhal.hal.errors import UnsupportedDTypeError, UnsupportedOpError, message
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import Declined, Handle, Launch, Number

Builder = Callable[..., Launch]


@dataclass(frozen=True, slots=True)
class Builders:
    """Functions of (runtime, ..., specs) that build the launches of the contract's methods."""

    group: GroupGenerator
    copy: Builder
    """Builder (runtime, source, target)."""
    fill: Builder
    """Builder (runtime, target) of a launch (number, target)."""
    reduce: Builder
    """Builder (runtime, op, x, out, axes)."""
    matmul: Builder
    """Builder (runtime, a, b, out); all have three axes."""
    gather: Builder
    """Builder (runtime, index, x, out)."""
    scatter_add: Builder
    """Builder (runtime, index, src, out)."""


class CoreMethods(ABC):
    """The arithmetic members of `ComputeBackend`. A backend inherits them and adds memory and submission."""

    def __init__(self, runtime: Any, builders: Builders) -> None:
        """Pass `runtime` to the builders."""
        self._runtime = runtime
        self._builders = builders
        self._launches: BoundedCache[Launch] = BoundedCache()

    @abstractmethod
    def allocate(self, nbytes: int) -> Handle:
        """Allocate device memory; also used for the workspace of launches."""

    @abstractmethod
    def deallocate(self, handle: Handle) -> None:
        """Release an allocation."""

    def fill(self, value: Number, out: Ref) -> None:
        """Set every element of `out` to `value`."""
        launch = self._launch(("fill", out.spec), lambda: self._builders.fill(self._runtime, out.spec))
        launch(_as_number(value, out.dtype), out)

    def copy(self, src: Ref, out: Ref) -> None:
        """Copy with a cast between references of any strides."""
        key = ("copy", src.spec, out.spec)
        self._launch(key, lambda: self._builders.copy(self._runtime, src.spec, out.spec))(src, out)

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        """Compute `out = op(x)` elementwise."""
        self._elementwise(op, x.dtype, (x,), out)

    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        """Compute `out = a op b` elementwise."""
        self._elementwise(op, a.dtype, (a, b), out)

    def where(self, cond: Ref, a: Ref, b: Ref, out: Ref) -> None:
        """Compute `out = a if cond else b` elementwise."""
        self._elementwise("where", a.dtype, (cond, a, b), out)

    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        """Reduce the last axis of `x`."""
        axes = (len(x.shape) - 1,)
        build = lambda: self._builders.reduce(self._runtime, op, x.spec, out.spec, axes)  # noqa: E731
        self._run(self._launch(("reduce", op, x.spec, out.spec), build), x, out)

    def matmul(self, a: Ref, b: Ref, out: Ref) -> None:
        """Compute `out[i] = a[i] @ b[i]`."""
        build = lambda: self._builders.matmul(self._runtime, a.spec, b.spec, out.spec)  # noqa: E731
        self._run(self._launch(("matmul", a.spec, b.spec, out.spec), build), a, b, out)

    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        """Compute `out[i, :] = x[index[i], :]`."""
        build = lambda: self._builders.gather(self._runtime, index.spec, x.spec, out.spec)  # noqa: E731
        self._run(self._launch(("gather", index.spec, x.spec, out.spec), build), index, x, out)

    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        """Compute `out[index[i], :] += src[i, :]`."""
        build = lambda: self._builders.scatter_add(self._runtime, index.spec, src.spec, out.spec)  # noqa: E731
        self._run(self._launch(("scatter_add", index.spec, src.spec, out.spec), build), index, src, out)

    def _elementwise(self, op: str, dtype: DType, inputs: tuple[Ref, ...], out: Ref) -> None:
        specs = tuple(r.spec for r in inputs)
        self._launch((op, dtype, specs, out.spec), lambda: self._build(op, dtype, specs, out.spec))(*inputs, out)

    def _build(self, op: str, dtype: DType, inputs: tuple[Spec, ...], out: Spec) -> Launch:
        launch = lower_core(self._builders.group, self._runtime, op, dtype, inputs, (out,))
        if isinstance(launch, Declined):
            error = UnsupportedOpError if "no expression" in launch.reason else UnsupportedDTypeError
            raise error(message(op, launch.reason, device=self._runtime.info.name))
        return launch

    def _launch(self, key: tuple[Any, ...], build: Callable[[], Launch]) -> Launch:
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = build()
        return launch

    def _run(self, launch: Launch, *args: Ref) -> None:
        if not launch.workspace:
            launch(*args)
            return
        memory = [_Temporary(self, n) for n in launch.workspace]
        launch(*args, *[m.handle for m in memory])
        recorder = self._runtime.recorder
        if recorder is not None and recorder.accepts():
            recorder.kept += memory


class _Temporary:
    """Temporary memory of a launch, released after the call or with the command buffer that recorded it."""

    __slots__ = ("_owner", "handle")

    def __init__(self, owner: CoreMethods, nbytes: int) -> None:
        self._owner = owner
        self.handle = owner.allocate(nbytes)

    def __del__(self) -> None:
        if hasattr(self, "handle"):  # missing if the allocation failed
            self._owner.deallocate(self.handle)


def _as_number(value: Any, dtype: DType) -> Any:
    """Cast a Python number to `dtype`; a runtime scalar becomes a derived runtime scalar."""
    if isinstance(value, RuntimeScalar):
        kind = "bool" if dtype.kind == "bool" else "float" if dtype.kind == "float" else "int"
        return DerivedScalar(lambda: _as_number(value.value, dtype), kind, (value,))
    if dtype.kind == "bool":
        return bool(value)
    return float(value) if dtype.kind == "float" else int(value)
