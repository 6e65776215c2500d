"""`torch.polyhal` and `torch.accelerator`: functions that programs use, and refusals."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

import polyhal
from polyhal.torch.device import current

module: Any = torch.polyhal  # type: ignore[attr-defined]


def test_which_device_there_is(torch_device: str) -> None:
    assert module.is_available()
    assert module.is_initialized()
    assert (module.device_count(), module.current_device()) == (1, 0)
    assert module.get_device_name() == current().info.name
    properties = module.get_device_properties(f"{torch_device}:0")
    assert properties.total_memory == current().info.memory
    assert polyhal.Device(properties.polyhal_name) is current()
    assert module.is_bf16_supported()
    with module.device(0), module.device_of(torch.ones(1, device=torch_device)):
        module.set_device(torch_device)
        module.synchronize()
    for wrong in (1, f"{torch_device}:1", torch.device(torch_device, 2)):
        with pytest.raises(ValueError, match="one Polyhal device"):
            module.set_device(wrong)
    with pytest.raises(ValueError, match="expected a polyhal device and got cpu"):
        module.synchronize("cpu")
    with pytest.raises(RuntimeError, match="no compute capability"):
        module.get_device_capability()
    with pytest.raises(AttributeError, match="no attribute 'cudnn_enabled'"):
        module.cudnn_enabled  # noqa: B018


def test_other_numbers_of_devices_are_refused(torch_device: str) -> None:
    for make in (torch.ones, torch.rand, torch.arange, torch.empty):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            make(2, device=f"{torch_device}:1")  # type: ignore[operator]
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(2).to(f"{torch_device}:3")


def test_memory(torch_device: str) -> None:
    gc.collect()
    module.empty_cache()
    module.reset_peak_memory_stats()
    before, reserved = module.memory_allocated(), module.memory_reserved()
    x = torch.empty(1 << 20, device=torch_device)
    assert module.memory_allocated() == torch.accelerator.memory_allocated() == before + (4 << 20)
    del x
    assert module.memory_allocated() == before
    assert module.max_memory_allocated() == torch.accelerator.max_memory_allocated() == before + (4 << 20)
    assert module.max_memory_reserved() == torch.accelerator.max_memory_reserved() == reserved + (4 << 20)
    assert module.memory_stats() == torch.accelerator.memory_stats()
    assert module.memory_stats()["reserved_bytes.all.current"] == module.memory_reserved() == reserved + (4 << 20)
    torch.accelerator.empty_cache()
    if hasattr(torch.accelerator, "empty_host_cache"):
        torch.accelerator.empty_host_cache()
    with pytest.raises(RuntimeError, match="cannot be reset"):
        torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.reset_peak_memory_stats()
    assert module.memory_reserved() == reserved
    assert module.max_memory_reserved() == reserved
    free, total = module.mem_get_info()
    assert free > 0
    assert total == current().info.memory
    assert str(current()) in module.memory_summary()


def test_a_share_of_memory_and_the_error_beyond_it(torch_device: str) -> None:
    try:
        module.set_per_process_memory_fraction((module.memory_reserved() + (1 << 20)) / current().info.memory)
        with pytest.raises(torch.OutOfMemoryError, match="no memory for"):
            torch.empty(1 << 20, device=torch_device)
    finally:
        current().set_memory_limit(None)
    with pytest.raises(ValueError, match="expected 0 to 1"):
        module.set_per_process_memory_fraction(2)


def test_the_accelerator(torch_device: str) -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device(torch_device)
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.synchronize()
    with pytest.raises(RuntimeError, match="no compute capability"):
        torch.accelerator.get_device_capability()


def test_streams_are_one_queue(torch_device: str) -> None:
    stream = module.Stream(priority=-1)
    assert stream == module.current_stream() == module.default_stream()
    with pytest.raises(ValueError, match="device 1"):
        module.Stream("polyhal:1")
    x = torch.ones(100, device=torch_device)
    with module.stream(stream):
        event = (x + 1, stream.record_event())[1]
        stream.wait_event(event)
        stream.wait_stream(stream)
    event.synchronize()
    stream.synchronize()
    x.record_stream(torch.accelerator.current_stream())
    assert event.query()
    assert stream.query()
    with pytest.raises(RuntimeError, match=r"do not measure time: call torch\.polyhal\.synchronize"):
        event.elapsed_time(event)
