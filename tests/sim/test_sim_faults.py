"""Every kind of fault: it strikes as planned, raises the right error, and does not affect other work."""

from __future__ import annotations

import contextlib
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from simulated import OpenSim, sim_of

import polyhal
from polyhal.backends.sim.faults import FaultKind, FaultPlan, load_faults
from polyhal.hal.device import Device
from polyhal.hal.errors import (
    BackendError,
    DeviceLostError,
    DeviceTimeoutError,
    KernelBuildError,
    OutOfMemoryError,
    TransferError,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def upload(device: Device) -> polyhal.Tensor:
    return polyhal.tensor(X, device=device)


def step(device: Device) -> np.ndarray:
    """Run a few commands of every kind."""
    x = upload(device)
    return (x @ x.mT + 1.0).numpy()


EXPECTED = X @ X.T + 1


def test_without_faults_nothing_happens(sim: Device) -> None:
    assert np.array_equal(step(sim), EXPECTED)
    assert sim_of(sim).faults.strikes == []


def test_an_allocation_fails_by_number(sim: Device) -> None:
    faults = sim_of(sim).faults
    upload(sim)
    number = sim_of(sim).allocations + 1
    faults.inject("allocation_failure", at=number)
    keep = [upload(sim) for _ in range(2)]  # the pool empties itself and tries again
    assert [(s.kind, s.number) for s in faults.strikes] == [(FaultKind.ALLOCATION_FAILURE, number)]
    faults.inject(FaultKind.ALLOCATION_FAILURE, times=None)
    with pytest.raises(OutOfMemoryError):
        polyhal.zeros((1000,), device=sim)
    faults.clear()
    assert polyhal.zeros((1000,), device=sim).numpy().shape == (1000,)
    assert all(np.array_equal(x.numpy(), X) for x in keep)


def test_an_allocation_that_fails_twice_in_a_row_is_an_error(sim: Device) -> None:
    faults = sim_of(sim).faults
    number = sim_of(sim).allocations + 1
    faults.inject("allocation_failure", at=number, times=2)
    with pytest.raises(OutOfMemoryError):
        upload(sim)
    assert [s.number for s in faults.strikes] == [number, number + 1]
    assert np.array_equal(upload(sim).numpy(), X)


def test_a_build_failure_is_a_warning_and_a_slower_way_unless_strict_or_without_another(
    open_sim: OpenSim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYHAL_STRICT", "0")
    for times in (1, 2):
        device = open_sim()
        sim_of(device).faults.inject("build_failure", name="mat*", times=times)
        x = upload(device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if times == 1:
                assert np.array_equal((x @ x.mT).numpy(), X @ X.T)
            else:
                with pytest.raises(KernelBuildError, match="as planned"):
                    x @ x.mT
        assert "set POLYHAL_STRICT=1 to raise the full error" in str(caught[0].message)


def test_a_build_fails_by_the_name_of_the_kernel(sim: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYHAL_STRICT", "1")
    sim_of(sim).faults.inject("build_failure", name="mat*")
    x = upload(sim)
    assert np.array_equal((x + 1).numpy(), X + 1)
    with pytest.raises(KernelBuildError, match=r"\[matmul\] build \d+ failed, as planned \(on sim\)"):
        x @ x.mT
    assert np.array_equal((x @ x.mT).numpy(), X @ X.T)


def test_a_device_is_lost_at_a_command_and_stays_lost(sim: Device) -> None:
    backend = sim_of(sim)
    x = upload(sim)
    lost_at = backend.commands + 2
    backend.faults.inject("device_lost", at=lost_at)
    y = x + 1
    y = y * 2
    with pytest.raises(
        DeviceLostError, match=rf"lost at command {lost_at} \(multiply\): it stopped responding; .*open it again"
    ):
        y.numpy()
    assert backend.is_lost()
    calls = [
        lambda: upload(sim),
        lambda: x.numpy(),
        lambda: x + 1,
        sim.synchronize,
        lambda: backend.deallocate(x.ref.handle),
    ]
    for call in calls:
        with pytest.raises(DeviceLostError, match=f"lost at command {lost_at}"):
            call()


@pytest.mark.parametrize("fault", ["device_lost", "stalled_queue"])
def test_reads_before_the_loss_of_the_device_stay_valid(open_sim: OpenSim, fault: str) -> None:
    device = open_sim()
    assert np.array_equal(step(device), EXPECTED)
    last = sim_of(device).commands
    for at in range(1, last + 1):
        device = open_sim()
        sim_of(device).faults.inject(fault, at=at)
        with pytest.raises((DeviceLostError, DeviceTimeoutError)):
            step(device)
    device = open_sim()
    sim_of(device).faults.inject(fault, at=last + 1)
    assert np.array_equal(step(device), EXPECTED)


def test_a_stalled_queue_is_a_timeout_that_names_the_kernel(sim: Device) -> None:
    backend = sim_of(sim)
    x = upload(sim)
    backend.faults.inject("stalled_queue", name="matmul")
    y = x @ x.mT
    with pytest.raises(DeviceTimeoutError, match=r"\(matmul\) did not end within 2 s, and the device was reset"):
        y.numpy()
    assert backend.virtual_time > 2e9
    with pytest.raises(DeviceLostError):
        x.numpy()


def test_a_short_stall_only_takes_time(open_sim: OpenSim) -> None:
    times = []
    for seconds in (None, 0.5):
        device = open_sim()
        if seconds:
            sim_of(device).faults.inject("stalled_queue", name="matmul", seconds=seconds)
        assert np.array_equal(step(device), EXPECTED)
        times.append(sim_of(device).virtual_time)
    assert 0.49e9 < times[1] - times[0] <= 0.5e9


def test_a_slow_link_only_takes_time(open_sim: OpenSim) -> None:
    times = []
    for factor in (1, 100):
        device = open_sim()
        sim_of(device).faults.inject("slow_link", times=None, factor=factor)
        assert np.array_equal(step(device), EXPECTED)
        times.append(sim_of(device).virtual_time)
    assert times[1] > times[0] + 2 * 99 * 2000


@pytest.mark.parametrize("direction", ["host to device", "device to host"])
def test_a_damaged_transfer_is_found_by_its_checksum(sim: Device, direction: str) -> None:
    sim_of(sim).faults.inject("corrupt_transfer", name=direction)
    with pytest.raises(
        TransferError, match=r"a transfer|the transfer of 24 bytes .* wrong checksum; (write|read) it again"
    ):
        upload(sim).numpy()
    assert np.array_equal(upload(sim).numpy(), X), "the device still works"


def test_a_wrong_result_is_not_reported(sim: Device) -> None:
    sim_of(sim).faults.inject("wrong_result", name="matmul")
    wrong, right = step(sim), step(sim)
    assert np.array_equal(right, EXPECTED)
    assert np.count_nonzero(wrong != EXPECTED) == 1


def test_a_late_callback_still_runs(sim: Device) -> None:
    backend = sim_of(sim)
    x = upload(sim)
    backend.faults.inject("late_callback", seconds=0.01)
    out, called = np.empty_like(X), threading.Event()
    event = backend.copy_from_device_async(x.ref.handle, 0, memoryview(out).cast("B"))
    event.add_callback(lambda error: called.set() if error is None else None)
    assert called.wait(10)
    assert np.array_equal(out, X)


# --- plans ----------------------------------------------------------------------------------------------------------


def test_probabilities_depend_only_on_the_seed_and_the_command() -> None:
    def struck(seed: int, numbers: range) -> list[int]:
        plan = FaultPlan()
        plan.inject("device_lost", probability=0.2, seed=seed, times=None)
        return [n for n in numbers if plan.strike(FaultKind.DEVICE_LOST, n, "add")]

    forward = struck(7, range(200))
    assert forward == struck(7, range(199, -1, -1))[::-1]
    assert 20 < len(forward) < 60
    assert forward != struck(8, range(200))


def test_a_fault_strikes_as_often_as_planned() -> None:
    plan = FaultPlan()
    plan.inject("wrong_result", name="add", times=2)
    names = ["mul", "add", "add", "add"]
    assert [plan.strike(FaultKind.WRONG_RESULT, i, n) is not None for i, n in enumerate(names)] == [
        False,
        True,
        True,
        False,
    ]
    assert plan.strike(FaultKind.DEVICE_LOST, 9, "add") is None


def test_a_plan_is_read_from_a_file(tmp_path: Path, open_sim: OpenSim) -> None:
    file = tmp_path / "faults.toml"
    file.write_text('[[fault]]\nkind = "wrong_result"\nname = "matmul"\n\n[[fault]]\nkind = "slow_link"\nfactor = 3\n')
    assert [f.kind for f in load_faults(str(file)).planned] == [FaultKind.WRONG_RESULT, FaultKind.SLOW_LINK]
    assert not np.array_equal(step(open_sim(f",faults={file}")), EXPECTED)
    file.write_text('[[fault]]\nkind = "flood"\n')
    with pytest.raises(ValueError, match=r"\[fault.1\] has kind = 'flood' \(expected one of allocation_failure, "):
        load_faults(str(file))
    file.write_text('[[fault]]\nkind = "device_lost"\nwhen = 3\n')
    with pytest.raises(ValueError, match=r"\[fault.1\] has an unknown when = 3 \(expected one of kind, name, at"):
        load_faults(str(file))
    file.write_text('[[fault]]\nkind = "device_lost"\nprobability = 2\n')
    with pytest.raises(ValueError, match=r"has probability = 2 \(expected a number from 0 to 1\)"):
        load_faults(str(file))


# --- faults of the program ------------------------------------------------------------------------------------------


def test_using_released_memory_halts_the_device_with_the_address(sim: Device) -> None:
    backend = sim_of(sim)
    x = upload(sim)
    address = x.ref.handle
    spare = x + 1
    del spare  # the pool keeps this memory, so the next sum does not allocate from the device
    backend.deallocate(address)
    y = x + 1
    with pytest.raises(
        DeviceLostError, match=rf"\(add\): page fault at address {address:#x}: allocation \d+ of 256 bytes"
    ):
        y.numpy()


def test_memory_is_released_once(sim: Device) -> None:
    backend = sim_of(sim)
    handle = backend.allocate(100)
    backend.deallocate(handle)
    with pytest.raises(BackendError, match="was released before"):
        backend.deallocate(handle)


def test_an_exception_of_a_kernel_function_is_raised_at_the_next_wait(sim: Device) -> None:
    def broken(x: np.ndarray) -> np.ndarray:
        raise ArithmeticError("no")

    kernel = polyhal.kernel("broken", numpy=broken)
    y = kernel(upload(sim))
    with pytest.raises(BackendError, match=r"\[broken\] the kernel failed with ArithmeticError: no"):
        sim.synchronize()
    sim.synchronize()
    del y
    assert np.array_equal(step(sim), EXPECTED)


def test_captured_steps_are_hit_inside_of_their_command_buffer(open_sim: OpenSim) -> None:
    def run(device: Device) -> np.ndarray:
        captured = polyhal.jit(lambda x: ((x @ x.mT).softmax(-1) + 1).sum(), warm_up=False)
        x = upload(device)
        return np.array([captured(x).item() for _ in range(2)])

    device = open_sim()
    expected, last = run(device), sim_of(device).commands
    for at in range(1, last + 1):
        device = open_sim()
        sim_of(device).faults.inject("device_lost", at=at)
        with pytest.raises(DeviceLostError, match=f"lost at command {at} "):
            run(device)
    assert np.array_equal(run(open_sim()), expected)


def test_a_failed_write_reaches_every_later_reader(sim: Device) -> None:
    """Both the waiting thread and the callback receive the error, in either order."""
    for _ in range(20):
        sim_of(sim).faults.inject("corrupt_transfer", name="host to device")
        x = upload(sim)
        reads = [x.numpy_async(), (x + 1).numpy_async()]
        for read in reads:
            with pytest.raises(TransferError, match="to the device arrived with a wrong checksum"):
                read.result()
        with contextlib.suppress(TransferError):  # unless a wait has raised it already
            sim.synchronize()
        assert np.array_equal(upload(sim).numpy(), X)
