"""Every result of a simulated device is compared with NumPy's as it runs, and wrong results are found."""

from __future__ import annotations

import numpy as np
from simulated import OpenSim, sim_of

import polyhal
from polyhal.hal.device import Device


def compute(device: Device) -> float:
    """Compute a product, a function, a sum and a copy."""
    x = polyhal.tensor(np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32), device=device)
    return float((x @ x.T).exp().log().sum().item())


def test_all_kernels_and_transfers_of_a_run_are_correct(sim: Device) -> None:
    with sim_of(sim).verify_results() as found:
        compute(sim)
    assert not found.problems
    assert found.kernels >= 2
    assert found.elements >= 64
    assert found.transfers == 2
    assert found.nbytes == 8 * 16 * 4 + 4


def test_a_wrong_result_is_found_and_named(sim: Device) -> None:
    backend = sim_of(sim)
    backend.faults.inject("wrong_result", at=backend.commands + 2)
    with backend.verify_results() as found:
        compute(sim)
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"command {backend.faults.strikes[0].number}, ")


def test_verification_takes_no_virtual_time(open_sim: OpenSim) -> None:
    plain, verified = sim_of(open_sim()), open_sim()
    compute(Device.opened("sim", plain))
    with sim_of(verified).verify_results():
        compute(verified)
    assert sim_of(verified).virtual_time == plain.virtual_time


def test_a_nested_log_does_not_hide_steps_from_the_outer_log(sim: Device) -> None:
    with sim_of(sim).record_events() as outer:
        with sim_of(sim).record_events() as inner:
            compute(sim)
        polyhal.zeros((3,), device=sim)
        sim.synchronize()
    assert 0 < len(inner) < len(outer)
