"""Kernel objects: the "compiled" kernels of the simulator, and how a dispatch runs them.

Like compiled code, a kernel object is specialized for fixed specs. It holds the computation on arrays (the reference of
the op or of the contract's member) and the cost that determines the dispatch's virtual time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhal.backends.common.reference import members
from polyhal.backends.common.reference.arrays import in_range, view_memory
from polyhal.backends.sim.address_space import AddressSpace
from polyhal.backends.sim.costs import elementwise_cost, kernel_cost, member_cost
from polyhal.backends.sim.kernel_arguments import ArgumentKind
from polyhal.backends.sim.timing import KernelCost
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import Spec, extent
from polyhal.hal.ops.opdef import OPS
from polyhal.hal.protocol import InputSpec, Number, UserKernel

if TYPE_CHECKING:
    from polyhal.hal.ops.schema import Params

Computation = Callable[[list[Any], list[np.ndarray]], None]
"""Function of inputs (arrays, numbers, None) and output arrays, which it fills."""


@dataclass(frozen=True, slots=True)
class KernelObject:
    """A kernel that the device executes."""

    name: str
    inputs: tuple[InputSpec | None, ...]
    outputs: tuple[Spec, ...]
    compute: Computation
    cost: KernelCost
    op: str = ""
    """Name of the op; empty for core members and user kernels."""
    params: Mapping[str, Any] = field(default_factory=dict)
    identity: tuple[Any, ...] | None = None
    """Cache key: kernels with equal keys share a number; None: never shared."""

    def describe(self) -> str:
        """Return the name with the specs of the operands."""
        inputs = ", ".join(str(s) for s in self.inputs if s is not None)
        return f"{self.name}({inputs}) -> {', '.join(map(str, self.outputs))}"

    def operands(
        self, memory: AddressSpace, arguments: Sequence[tuple[ArgumentKind, Any]]
    ) -> tuple[list[Any], list[np.ndarray]]:
        """Resolve inputs and outputs from device addresses. Raises PageFaultError."""
        specs = (*self.inputs, *self.outputs)
        operands = [
            _operand(memory, spec, value) if kind is ArgumentKind.ADDRESS and isinstance(spec, Spec) else value
            for spec, (kind, value) in zip(specs, arguments, strict=True)
        ]
        count = len(self.inputs)
        return operands[:count], operands[count:]

    def written(self, arguments: Sequence[tuple[ArgumentKind, Any]]) -> list[tuple[int, int]]:
        """Return the (address, bytes) span of each output."""
        spans = []
        for spec, (_, address) in zip(self.outputs, arguments[len(self.inputs) :], strict=True):
            low, high = extent(spec.shape, spec.strides)
            spans.append((address + low * spec.dtype.itemsize, (high - low + 1) * spec.dtype.itemsize))
        return [(address, nbytes) for address, nbytes in spans if nbytes]


def _operand(memory: AddressSpace, spec: Spec, address: int) -> np.ndarray:
    """Return a tensor in device memory as an array. Raises PageFaultError if it exceeds its allocation."""
    size = spec.dtype.itemsize
    if not spec.size:
        return np.empty(spec.shape, spec.dtype.numpy)
    low, high = extent(spec.shape, spec.strides)
    allocation, offset = memory.find(address + low * size, (high - low + 1) * size)
    assert allocation.storage is not None, "only a device with compute=on runs kernels"
    return view_memory(spec, allocation.storage[offset:], -low)


class KernelTable:
    """Loaded kernel objects of a device, by number. Core members share one object per combination of specs."""

    def __init__(self) -> None:
        self._objects: list[KernelObject] = []
        self._members: dict[tuple[Any, ...], int] = {}
        self._shared: dict[tuple[Any, ...], int] = {}
        """Number of each kernel with an identity, so that programs which capture steps repeatedly do not fill the table."""
        self.builds = 0
        """Number of builds so far, including failed ones."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of kernels."""
        return len(self._objects)

    def __getitem__(self, number: int) -> KernelObject:
        """Return a kernel. Numbers start at 1. Raises IndexError."""
        if not 0 < number <= len(self._objects):
            raise IndexError(f"no kernel has the number {number}")
        return self._objects[number - 1]

    def begin(self) -> int:
        """Count a build, and return its number."""
        with self._lock:
            self.builds += 1
            return self.builds

    def load(self, kernel: KernelObject) -> int:
        """Add a kernel, and return its number."""
        with self._lock:
            if kernel.identity in self._shared:
                return self._shared[kernel.identity]
            self._objects.append(kernel)
            if kernel.identity is not None:
                self._shared[kernel.identity] = len(self._objects)
            return len(self._objects)

    def member(self, key: tuple[Any, ...], build: Callable[[], int]) -> int:
        """Return the number of the kernel for a core member, built when it is first used."""
        number = self._members.get(key)
        if number is None:
            number = self._members[key] = build()
        return number


def op_kernel(op: str, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params) -> KernelObject:
    """Build the kernel of an op from its reference function."""
    function = OPS[op].reference
    compute = partial(members.run_function, function, dict(params))
    cost = kernel_cost(op, inputs, outputs, params)
    return KernelObject(op, inputs, outputs, compute, cost, op, params, _identity(function, inputs, outputs, params))


def user_kernel(
    kernel: UserKernel, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> KernelObject:
    """Build a user kernel from its NumPy function."""
    function = kernel.sources["numpy"]
    compute = partial(members.run_function, function, dict(params))
    identity = _identity(function, inputs, outputs, params)
    return KernelObject(kernel.name, inputs, outputs, compute, elementwise_cost(inputs, outputs), identity=identity)


def _identity(
    function: Any, inputs: tuple[InputSpec | None, ...], outputs: tuple[Spec, ...], params: Params
) -> tuple[Any, ...] | None:
    """Return the cache key of a kernel; None if a parameter is not a plain value, whose `repr` is complete."""
    if not all(map(_is_plain, params.values())):
        return None
    return function, inputs, outputs, repr(sorted(params.items()))  # as text, 1, 1.0 and True differ


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, DType))


def member_kernel(name: str, op: str, inputs: tuple[Spec, ...], output: Spec) -> KernelObject:
    """Build the kernel of a core member; `op` is the function that `unary`, `binary` and `reduce` apply."""
    function: Callable[..., None] = getattr(members, name)
    applied = partial(function, op) if op else function

    def compute(arrays: list[Any], outs: list[np.ndarray]) -> None:
        applied(*arrays, *outs)

    return KernelObject(op or name, inputs, (output,), compute, member_cost(name, inputs, output))


def fill_kernel(output: Spec) -> KernelObject:
    """Build the kernel that sets every element to a number."""

    def compute(numbers: list[Number], outs: list[np.ndarray]) -> None:
        outs[0][...] = in_range(numbers[0], output.dtype)

    return KernelObject("fill", (None,), (output,), compute, member_cost("fill", (), output))
