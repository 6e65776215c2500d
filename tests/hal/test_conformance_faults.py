"""Detection of faults by the kit: each test plants a fault in the NumPy backend and expects the kit to report it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from async_reads import AsyncReadBackend, CallsEarly, CallsTwice, FailsReads, IgnoresOffsets, ReadsLater
from op_patches import patch_lowering

from polyhal.backends.common.launching.completion import Completion, Finished
from polyhal.backends.numpy.backend import CoreNumpyBackend, NumpyBackend, array, create
from polyhal.hal.core.memory.host_bytes import host_bytes
from polyhal.hal.device import Device
from polyhal.hal.layout import Ref, Spec
from polyhal.hal.ops import OPS
from polyhal.hal.ops.lowering import Decompose
from polyhal.hal.testing import Expectations, Scope, verify
from polyhal.hal.testing.kit import contract_async
from polyhal.hal.testing.kit.cases import op_cases


class FaultyBackend(CoreNumpyBackend):
    """A backend with only the required members, so that every op uses the broken member of a subclass."""

    def __init__(self) -> None:
        super().__init__(create("contiguous_only").info)


class _IgnoresOffsets(FaultyBackend):
    def unary(self, op: str, x: Ref, out: Ref) -> None:
        super().unary(op, Ref(x.handle, x.spec, 0), out)


class _WritesTooMuch(FaultyBackend):
    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        super().binary(op, a, b, out)
        room = out.handle.nbytes // out.dtype.itemsize - out.offset
        padded = min(-(-out.size // 4) * 4, room)
        array(Ref(out.handle, Spec(out.dtype, (padded,), (1,)), out.offset))[out.size :] = 0


class _LeavesTheTail(FaultyBackend):
    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        short = out.size // 4 * 4
        if short:
            spec = Spec(a.dtype, (short,), (1,))
            super().binary(
                op,
                Ref(a.handle, spec, a.offset),
                Ref(b.handle, spec, b.offset),
                Ref(out.handle, spec._replace(dtype=out.dtype), out.offset),
            )


class _IgnoresNegativeStrides(FaultyBackend):
    def copy(self, src: Ref, out: Ref) -> None:
        spec = src.spec._replace(strides=tuple(abs(s) for s in src.strides))
        low = sum((n - 1) * s for n, s in zip(src.shape, src.strides, strict=True) if s < 0)
        super().copy(Ref(src.handle, spec, src.offset + low), out)


class _LosesNaN(FaultyBackend):
    def binary(self, op: str, a: Ref, b: Ref, out: Ref) -> None:
        if op == "max" and a.dtype.is_floating_point:
            array(out)[...] = np.fmax(array(a), array(b))
        else:
            super().binary(op, a, b, out)


class _SumsInHalf(FaultyBackend):
    def reduce(self, op: str, x: Ref, out: Ref) -> None:
        if op == "sum" and x.dtype.name == "float16":
            total = np.zeros(out.shape, np.float16)
            for column in array(x).T:
                total = (total + column).astype(np.float16)
            array(out)[...] = total
        else:
            super().reduce(op, x, out)


class _ReadsOutOfRange(FaultyBackend):
    def gather(self, index: Ref, x: Ref, out: Ref) -> None:
        rows = array(x)
        array(out)[...] = rows[np.clip(array(index), 0, len(rows) - 1)]


class _AddsOnce(FaultyBackend):
    def scatter_add(self, index: Ref, src: Ref, out: Ref) -> None:
        rows, target = array(index), array(out)
        inside = (rows >= 0) & (rows < len(target))
        target[rows[inside]] += array(src)[inside]


class _ApproximatesExp(FaultyBackend):
    def unary(self, op: str, x: Ref, out: Ref) -> None:
        super().unary(op, x, out)
        if op == "exp":
            array(out)[...] *= 1 + 2e-6


class _OverlapsAllocations(FaultyBackend):
    def allocate(self, nbytes: int) -> Any:
        whole = self.__dict__.setdefault("_block", np.zeros(1 << 22, np.uint8))
        return whole[:nbytes]

    def deallocate(self, handle: Any) -> None:
        pass


FAULTS: list[tuple[type[FaultyBackend], str]] = [
    (_IgnoresOffsets, "contract/unary/exp"),
    (_WritesTooMuch, "contract/binary/add"),
    (_WritesTooMuch, "forward/add/float32"),
    (_LeavesTheTail, "contract/binary/add"),
    (_LeavesTheTail, "forward/add/float32"),
    (_IgnoresNegativeStrides, "contract/copy/layouts"),
    (_IgnoresNegativeStrides, "forward/add/*"),
    (_LosesNaN, "contract/special_values"),
    (_LosesNaN, "forward/maximum/float32"),
    (_SumsInHalf, "contract/reduce/sum"),
    (_SumsInHalf, "forward/sum/float16"),
    (_ReadsOutOfRange, "contract/gather"),
    (_ReadsOutOfRange, "forward/embedding/float32"),
    (_AddsOnce, "contract/scatter_add"),
    (_AddsOnce, "forward/scatter_rows/float32"),
    (_ApproximatesExp, "contract/unary/exp"),
    (_ApproximatesExp, "forward/exp/float32"),
    (_OverlapsAllocations, "contract/memory"),
]


ASYNC_FAULTS: list[tuple[type[AsyncReadBackend], str]] = [
    (ReadsLater, "order"),
    (ReadsLater, "outstanding"),
    (IgnoresOffsets, "ranges"),
    (CallsTwice, "order"),
    (CallsTwice, "late_callbacks"),
    (CallsEarly, "ranges"),
    (FailsReads, "released_memory"),
]


@pytest.mark.parametrize(("fault", "case"), ASYNC_FAULTS, ids=[f"{f.__name__}-{c}" for f, c in ASYNC_FAULTS])
def test_planted_fault_of_asynchronous_reads_is_found(fault: type[AsyncReadBackend], case: str) -> None:
    sound = verify(_opened(AsyncReadBackend()), only=f"contract/async_read/{case}")
    assert sound.ok, sound.failed[0].problem
    assert sound.passed
    assert not verify(_opened(fault()), only=f"contract/async_read/{case}").ok


class _PeerBackend(NumpyBackend):
    def __init__(self) -> None:
        super().__init__(create("").info)


class _CopiesTheWholePeer(_PeerBackend):
    def copy_from_peer(self, peer: Any, src: Any, src_offset: int, dst: Any, dst_offset: int, nbytes: int) -> Finished:
        return super().copy_from_peer(peer, src, 0, dst, dst_offset, nbytes)


class _CopiesLater(_PeerBackend):
    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[Callable[[], Any]] = []

    def copy_from_peer(self, *args: Any) -> Finished:
        self._waiting.append(partial(super().copy_from_peer, *args))
        return Finished()

    def copy_from_device(self, src: Any, offset: int, dst: memoryview) -> None:
        while self._waiting:
            self._waiting.pop()()
        super().copy_from_device(src, offset, dst)


class _AcceptsAnybody(_PeerBackend):
    def can_copy_from(self, peer: Any) -> bool:
        return True


PEER_FAULTS: list[tuple[type[_PeerBackend], str]] = [
    (_CopiesTheWholePeer, "ranges"),
    (_CopiesTheWholePeer, "ranges_of_another"),
    (_CopiesLater, "order"),
    (_CopiesLater, "order_of_another"),
    (_AcceptsAnybody, "accepted"),
]


@pytest.mark.parametrize(("fault", "case"), PEER_FAULTS, ids=[f"{f.__name__[1:]}-{c}" for f, c in PEER_FAULTS])
def test_planted_fault_of_peer_copies_is_found(fault: type[_PeerBackend], case: str) -> None:
    sound = verify(_opened(_PeerBackend()), only=f"contract/peer_copy/{case}")
    assert sound.ok, sound.failed[0].problem
    assert sound.passed
    assert not verify(_opened(fault()), only=f"contract/peer_copy/{case}").ok


class _ImportsACopy(_PeerBackend):
    """An import that copies the memory, which drivers may do."""

    def import_memory(self, address: int, nbytes: int) -> Any:
        handle = self.allocate(nbytes)
        handle[:] = host_bytes(address, nbytes)
        return handle


class _ImportsTheWholeBlock(_PeerBackend):
    def import_memory(self, address: int, nbytes: int) -> Any:
        return super().import_memory(address - address % 64, nbytes + address % 64)


class _CountsImports(_PeerBackend):
    def import_memory(self, address: int, nbytes: int) -> Any:
        self._allocated += nbytes
        return super().import_memory(address, nbytes)


IMPORT_FAULTS: list[tuple[type[_PeerBackend], str]] = [
    (_ImportsACopy, "both_ways"),
    (_ImportsACopy, "transfers"),
    (_ImportsTheWholeBlock, "borders"),
    (_CountsImports, "release"),
]


@pytest.mark.parametrize(("fault", "case"), IMPORT_FAULTS, ids=[f"{f.__name__[1:]}-{c}" for f, c in IMPORT_FAULTS])
def test_planted_fault_of_imports_is_found(fault: type[_PeerBackend], case: str) -> None:
    sound = verify(_opened(_PeerBackend()), only=f"contract/memory_import/{case}")
    assert sound.ok, sound.failed[0].problem
    assert sound.passed
    assert not verify(_opened(fault()), only=f"contract/memory_import/{case}").ok


def test_a_lost_callback_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_async, "_TIMEOUT", 0.1)
    monkeypatch.setattr(Completion, "add_callback", lambda self, callback: None)
    found = verify(_opened(AsyncReadBackend()), only="contract/async_read/order")
    assert "was not called" in found.failed[0].problem


@pytest.mark.parametrize(("fault", "case"), FAULTS, ids=[f"{f.__name__[1:]}-{c}" for f, c in FAULTS])
def test_planted_fault_is_found(fault: type[FaultyBackend], case: str) -> None:
    sound = verify(_opened(FaultyBackend()), only=case)
    assert sound.ok, sound.failed[0].problem
    assert sound.passed
    assert not verify(_opened(fault()), only=case).ok


def _opened(backend: CoreNumpyBackend) -> Any:
    return Device.opened("faulty", backend)


def test_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyhal.hal.ops.opdef import GradientRule

    assert verify("numpy", only="gradient/square/float64").ok
    square = OPS["square"]
    monkeypatch.setattr(square, "gradient", GradientRule(lambda g, x: g * (x * 2.0001), square.schema))
    found = verify("numpy", only="gradient/square/float64")
    assert not found.ok
    assert "by central differences" in found.failed[0].problem


def test_a_rule_that_differs_from_its_decomposition_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    square = OPS["square"]
    changed = (*square.lowering[:-1], Decompose(lambda x: x * x * 1.001))
    patch_lowering(monkeypatch, square, *changed)
    found = verify("numpy", only="*/square/float64")
    assert {o.id for o in found.failed} == {"decomposition/square/float64", "gradient/square/float64"}


def test_a_host_fallback_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_lowering(monkeypatch, OPS["tanh"], *OPS["tanh"].lowering[:-1])
    target = _opened(FaultyBackend())
    found = verify(target, only="forward/tanh/float32")
    assert "FallbackRefusedError" in found.failed[0].problem
    assert (
        verify(
            target, only="forward/tanh/float32", expectations=Expectations(unsupported={"*/tanh/*": "no such function"})
        ).unsupported
        == 1
    )


def test_an_expected_failure_that_passes_is_a_failure() -> None:
    known = Expectations(expected_failure={"forward/add/*": "wrong in the driver"})
    report = verify("numpy", only="forward/add/float32", expectations=known)
    assert [o.problem for o in report.failed] == ["passed, but it is listed as an expected failure"]


def test_expectations_file(tmp_path: Any) -> None:
    from polyhal.hal.testing.kit.expectations import read

    path = tmp_path / "device.toml"
    path.write_text(
        '[unsupported]\n"*/float64" = "no double precision"\n[expected_failure]\n"forward/tan/*" = "driver 12"\n'
    )
    known = read(path)
    assert known.is_unsupported("forward/add/float64") == "no double precision"
    assert known.is_expected_failure("forward/tan/float32") == "driver 12"
    assert known.is_unsupported("forward/add/float32") is None
    path.write_text('[ignored]\n"*" = "everything"\n')
    with pytest.raises(ValueError, match=r"has an unknown ignored .*expected one of unsupported, expected_failure"):
        read(path)


def test_the_small_scope_only_omits_calls() -> None:
    """Every case exists in both scopes; in the small one it runs fewer calls."""
    from polyhal.hal.testing import cases

    target = Device("numpy")
    assert {c.id for c in cases(target, Scope(small=True))} <= {c.id for c in cases(target, Scope())}


def test_verify_restores_the_fallback_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("POLYHAL_FALLBACK", "allow")
    verify("numpy", only="contract/identity")
    assert os.environ["POLYHAL_FALLBACK"] == "allow"


def test_every_op_is_checked_in_every_layout() -> None:
    """The rotation uses every layout for each input of each op at least once over its samples and dtypes."""
    from polyhal.hal.testing.kit.input_layouts import INPUT_LAYOUTS

    missing: dict[str, set[str]] = {}
    for op in OPS:
        if op.tests.samples is None or not op.schema.inputs or op.creates:
            continue
        seen = {str(a) for dtype in op.tests.dtypes or (None,) for a in _met(op, dtype)}
        if gap := {str(a) for a in INPUT_LAYOUTS} - seen:
            missing[op.name] = gap
    assert not missing


def _met(op: Any, dtype: Any) -> set[Any]:
    from polyhal.hal.testing.kit import forward
    from polyhal.hal.testing.kit.sample_calls import runnable_calls

    made = runnable_calls(Device("numpy"), op, dtype, Scope())
    rounds = forward.rotation_rounds(op, dtype, len(made), Scope())
    return {
        arrangement
        for call in made
        for turn in range(rounds)
        for value, arrangement in zip(
            call.values,
            forward.rotated_layouts(call, forward.rotation_start(op, dtype) + turn * len(made)),
            strict=True,
        )
        if isinstance(value, np.ndarray)
    }


def test_a_device_with_the_required_members_only_runs_decompositions_once() -> None:
    kinds = {
        name: {c.kind for c in op_cases(Device(name), OPS["gelu"], Scope())}
        for name in ("numpy", "numpy:contiguous_only")
    }
    assert kinds["numpy"] - kinds["numpy:contiguous_only"] == {"decomposition"}
