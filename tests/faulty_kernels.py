"""NumPy devices with one kernel that is broken in some way, as drivers break kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from polyhal.backends.numpy.backend import NumpyBackend, array, create
from polyhal.hal.device import Device
from polyhal.hal.errors import BackendError, DeviceLostError, KernelBuildError
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch

LOG = (
    "the driver refused the kernel\noptions: -O3\nsource:\n    1 | x\nlog:\nrows.cl:7: error: too many registers\nmore"
)


class FaultyKernels(NumpyBackend):
    """NumPy with kernels for `op` on float32 that pass through `spoil`."""

    op = "softmax"

    def __init__(self, driver: str = "1.0") -> None:
        info = replace(create("").info, backend="faulty", id=f"faulty-{type(self).__name__}", driver=driver)
        super().__init__(info)

    def lower(
        self, op: str, inputs: tuple[Any, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        launch = super().lower(op, inputs, outputs, params)
        if op != self.op or isinstance(launch, Declined) or inputs[0].dtype.name != "float32":
            return launch
        return self.spoil(launch, inputs)

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        return launch


class WrongResult(FaultyKernels):
    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            launch(*args)
            array(args[-1])[...] *= np.float32(1.01)

        return SimpleLaunch("wrong rows", run)


class WrongOnStrides(WrongResult):
    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        return launch if inputs[0].is_contiguous else super().spoil(launch, inputs)


class RaisesAtLaunch(FaultyKernels):
    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            raise BackendError("CL_INVALID_WORK_GROUP_SIZE")

        return SimpleLaunch("raising rows", run)


class LosesTheDevice(FaultyKernels):
    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            raise DeviceLostError("the device does not answer")

        return SimpleLaunch("deadly rows", run)


class DoesNotBuild(FaultyKernels):
    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        raise KernelBuildError(LOG)


class WrongOnce(FaultyKernels):
    """Wrong at the first call only, as a race may be."""

    calls = 0

    def spoil(self, launch: Launch, inputs: tuple[Any, ...]) -> Launch:
        def run(*args: Any) -> None:
            launch(*args)
            self.calls += 1
            if self.calls == 1:
                array(args[-1])[...] = 7.0

        return SimpleLaunch("racing rows", run)


class WrongGradient(WrongResult):
    op = "softmax_grad"


class WrongOptionalName(NumpyBackend):
    """`unary` is wrong for a name that the contract does not require."""

    def __init__(self) -> None:
        super().__init__(replace(create("").info, backend="faulty", id="faulty-optional"))

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        super().unary(op, x, out)
        if op == "tanh" and out.dtype.name == "float64":
            array(out)[...] += 1e-9


class WrongTwice(WrongOptionalName):
    """A native kernel for tanh, as wrong as the core method that would take its place."""

    def lower(
        self, op: str, inputs: tuple[Any, ...], outputs: tuple[Spec, ...], params: Mapping[str, Any]
    ) -> Launch | Declined:
        if op != "tanh" or not inputs[0].is_contiguous:
            return super().lower(op, inputs, outputs, params)
        return SimpleLaunch("wrong tanh", lambda x, out: self.unary("tanh", x, out))


class WrongRequiredName(NumpyBackend):
    """`unary` is wrong for a name that the contract requires."""

    def __init__(self) -> None:
        super().__init__(replace(create("").info, backend="faulty", id="faulty-required"))

    def unary(self, op: str, x: Ref, out: Ref) -> None:
        super().unary(op, x, out)
        if op == "floor" and out.dtype.name == "float64":
            array(out)[...] += 1.0


def opened(backend: NumpyBackend) -> Device:
    """A device of its own around a backend, as a program that just started has it."""
    return Device.opened("faulty", backend)
