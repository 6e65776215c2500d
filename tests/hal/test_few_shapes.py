"""The testing kit with few shapes checks all ops while devices that compile per shape compile a fraction of the programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyhal.backends.numpy.backend import CoreNumpyBackend, array, create
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref
from polyhal.hal.testing import Scope, cases, verify

FEW = Scope(few_shapes=True)
_MEMBERS = ("fill", "copy", "unary", "binary", "where", "reduce", "matmul", "gather", "scatter_add")


class Compiling(CoreNumpyBackend):
    """A backend that records the programs that a runtime would compile: one per member, function, shapes and dtypes."""

    def __init__(self) -> None:
        super().__init__(create("contiguous_only").info)
        self.programs: set[Any] = set()
        for name in _MEMBERS:
            setattr(self, name, self._noted(name, getattr(self, name)))

    def _noted(self, name: str, function: Any) -> Any:
        def member(*args: Any) -> None:
            self.programs.add((name, *[(a.shape, a.dtype) if isinstance(a, Ref) else str(a)[:6] for a in args]))
            function(*args)

        return member


def _programs(scope: Scope) -> int:
    backend = Compiling()
    for pattern in ("forward/g[e-r]*", "contract/unary/*", "contract/binary/*"):
        report = verify(Device.opened("compiling", backend), scope=scope, only=pattern)
        assert report.ok, report.failed[0].problem
    return len(backend.programs)


def test_a_fraction_of_the_programs_suffices() -> None:
    """These cases compile at most a third of the programs (1783 of 6682 in the whole kit)."""
    assert _programs(FEW) < _programs(Scope()) / 3


def test_every_op_is_checked_with_its_gradients() -> None:
    device = Device("numpy:contiguous_only")
    checked = {(c.kind, c.op) for c in cases(device, Scope())}
    assert {(c.kind, c.op) for c in cases(device, FEW)} == checked


class LosesNaN(Compiling):
    def __init__(self) -> None:
        super().__init__()
        sound = self.binary

        def binary(op: str, a: Ref, b: Ref, out: Ref) -> None:
            if op == "max" and a.dtype.is_floating_point:
                array(out)[...] = np.fmax(array(a), array(b))
            else:
                sound(op, a, b, out)

        self.binary = binary  # type: ignore[method-assign]


def test_special_values_are_among_the_few() -> None:
    report = verify(Device.opened("faulty", LosesNaN()), scope=FEW, only="forward/maximum/*")
    assert [o.id for o in report.failed] == ["forward/maximum/float32"]


def test_reductions_and_pointwise_ops_share_their_shapes() -> None:
    backend = Compiling()
    for op in ("add", "sin", "gelu", "sum", "mean"):
        assert verify(Device.opened("compiling", backend), scope=FEW, only=f"forward/{op}/*").ok
    arithmetic = {program for program in backend.programs if program[0] in ("unary", "binary", "where", "reduce")}
    shapes = {part[0] for program in arithmetic for part in program if isinstance(part, tuple)}
    assert shapes <= {(64,), (4, 16), (4,)}
