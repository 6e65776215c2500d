"""`torch.use_deterministic_algorithms` on the device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import polyhal
import polyhal.torch

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool]


@pytest.fixture(autouse=True)
def _settings_are_restored() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]


def test_the_setting_of_kernels_follows_pytorchs(torch_on_numpy: str) -> None:
    assert not polyhal.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert polyhal.are_deterministic_algorithms_enabled()
    assert torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    assert not polyhal.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert polyhal.are_deterministic_algorithms_enabled()
    torch.set_deterministic_debug_mode("default")
    assert not polyhal.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("dtype", DTYPES)
def test_new_memory_is_filled_as_on_the_cpu(torch_device: str, dtype: torch.dtype) -> None:
    torch.use_deterministic_algorithms(True)
    for make in (
        lambda device: torch.empty(2, 3, dtype=dtype, device=device),
        lambda device: torch.empty_strided((2, 2), (1, 2), dtype=dtype, device=device),
        lambda device: torch.empty_like(torch.zeros(3, dtype=dtype, device=device)),
        lambda device: torch.zeros(2, dtype=dtype, device=device).new_empty(2),
        lambda device: torch.zeros(2, dtype=dtype, device=device).resize_(5),
        lambda device: torch.zeros(2, dtype=dtype, device=device),
        lambda device: torch.empty(0, dtype=dtype, device=device),
    ):
        torch.testing.assert_close(make(torch_device).cpu(), make("cpu"), rtol=0, atol=0, equal_nan=True)


def test_complex_memory_is_filled_with_nan(torch_device: str) -> None:
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3, dtype=torch.complex64, device=torch_device).isnan().all()


def test_the_fill_can_be_turned_off_and_the_ordered_sums_kept(torch_on_numpy: str) -> None:
    torch.use_deterministic_algorithms(True)
    polyhal.debug()
    try:
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        shown = torch.empty(2, dtype=torch.int32, device=torch_on_numpy)
        torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
        filled = torch.empty(2, dtype=torch.int32, device=torch_on_numpy)
    finally:
        polyhal.debug(False)
    assert filled.tolist() == [2**31 - 1] * 2
    assert shown.tolist() != filled.tolist()
    assert polyhal.are_deterministic_algorithms_enabled()


def test_polyhals_own_setting_fills_nothing(torch_on_numpy: str) -> None:
    polyhal.use_deterministic_algorithms(True)
    polyhal.debug()
    try:
        x = torch.empty(2, dtype=torch.int32, device=torch_on_numpy)
    finally:
        polyhal.debug(False)
    assert x.tolist() != [2**31 - 1] * 2


def test_a_recorded_step_fills_memory_in_each_run(torch_device: str) -> None:
    torch.use_deterministic_algorithms(True)

    @polyhal.torch.jit
    def step(x: torch.Tensor) -> torch.Tensor:
        rows = torch.empty(2, 2, device=x.device)
        rows[0] = x
        return rows

    for _ in range(4):
        found = step(torch.ones(2, device=torch_device)).cpu()
        torch.testing.assert_close(found, torch.tensor([[1, 1], [float("nan")] * 2]), equal_nan=True)
