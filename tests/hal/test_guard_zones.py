"""The testing kit detects a write of one element out of bounds, to outputs and temporaries, for all argument names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyhal
from polyhal.backends.numpy.backend import NumpyBackend, array, create
from polyhal.hal import dtypes
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.protocol import Declined, Launch, SimpleLaunch
from polyhal.hal.testing import check
from polyhal.hal.testing.kit.guards import guard_zone, poison

NAMES = ("a", "b", "c", "ab", "ba", "scale", "shift", "halve", "twice", "rows", "columns", "smooth")
_TEMPORARY = 40
"""Bytes of the temporary, which is not a block size of the pool."""


def _element(out: Ref, position: int) -> np.ndarray:
    """Return one element at an offset from a contiguous output's first; empty outside of the allocation."""
    place, size = out.offset + position, out.dtype.itemsize
    inside = place >= 0 and (place + 1) * size <= out.handle.nbytes
    return array(Ref(out.handle, Spec(out.dtype, (int(inside),), (1,)), place if inside else 0))


class Overrunning(NumpyBackend):
    """NumPy, with user kernels that write one element out of bounds."""

    def __init__(self) -> None:
        super().__init__(replace(create("").info, backend="faulty", id="faulty-guards"))

    def compile_kernel(self, kernel: Any, *args: Any) -> Launch | Declined:
        launch = super().compile_kernel(kernel, *args)
        assert not isinstance(launch, Declined)

        def run(*values: Any) -> None:
            *operands, out, temporary = values
            launch(*operands, out)
            self.overrun(out, temporary)

        return SimpleLaunch(kernel.name, run, (_TEMPORARY,))

    def overrun(self, out: Ref, temporary: np.ndarray) -> None:
        """Write nothing out of bounds: the kernel is correct."""


class BeforeTheOutput(Overrunning):
    def overrun(self, out: Ref, temporary: np.ndarray) -> None:
        _element(out, -1)[...] = 0


class AfterTheOutput(Overrunning):
    def overrun(self, out: Ref, temporary: np.ndarray) -> None:
        _element(out, out.size)[...] = 0


class AfterTheTemporary(Overrunning):
    def overrun(self, out: Ref, temporary: np.ndarray) -> None:
        temporary[_TEMPORARY] = 0


class BetweenTheElements(Overrunning):
    def copy(self, src: Ref, out: Ref) -> None:
        super().copy(src, out)
        if out.size and not out.is_contiguous:
            _element(out, 1)[...] = 0


def _kernel(name: str) -> Any:
    def doubled(x: np.ndarray) -> np.ndarray:
        return x * 2

    samples = [(np.linspace(-1, 1, n),) for n in (8, 64)]
    return polyhal.kernel(name, numpy=doubled, samples=samples, dtypes=(dtypes.float32,))


@pytest.mark.parametrize("fault", [BeforeTheOutput, AfterTheOutput, AfterTheTemporary, BetweenTheElements])
def test_an_overrun_of_one_element_is_found_under_any_name(fault: Callable[[], Overrunning]) -> None:
    for name in NAMES:
        assert check(_kernel(name), Device.opened("sound", Overrunning()))
        with pytest.raises(AssertionError, match="wrote"):
            check(_kernel(name), Device.opened("faulty", fault()))


def test_no_element_of_a_guard_zone_has_the_bits_of_a_poisoned_input() -> None:
    for dtype in dtypes.ALL:
        bits = np.dtype(f"u{dtype.itemsize}")
        assert (guard_zone(dtype, 4).view(bits) != poison(dtype, 4).view(bits)).all(), dtype
        assert not dtype.is_floating_point or np.isnan(guard_zone(dtype, 4).astype(np.float64)).all()


class ReadsAndWritesTooFar(Overrunning):
    """A kernel that copies an element next to the input, like a loop with one iteration too many."""

    def compile_kernel(self, kernel: Any, inputs: Any, outputs: Any, *args: Any) -> Launch | Declined:
        def run(x: Ref, out: Ref) -> None:
            array(out)[...] = array(x) * 2
            adjacent, target = _element(x, x.size), _element(out, out.size)
            if adjacent.size:
                target[...] = adjacent

        return SimpleLaunch(kernel.name, run)


def test_an_overrun_that_copies_poison_is_found() -> None:
    with pytest.raises(AssertionError, match="wrote outside"):
        check(_kernel("copied"), Device.opened("faulty", ReadsAndWritesTooFar()))
