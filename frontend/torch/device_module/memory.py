"""Memory statistics of Polyhal's pool, under the names of `torch.cuda`."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from polyhal.hal.system.diagnostics.memory_summary import memory_summary as summary_of
from polyhal.torch.device import current
from polyhal.torch.device_module.devices import check_index

if TYPE_CHECKING:
    from polyhal.torch.call_types import DeviceName

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def memory_allocated(device: DeviceName | None = None) -> int:
    """Return the bytes that tensors use."""
    check_index(device)
    return current().memory_stats().used


def max_memory_allocated(device: DeviceName | None = None) -> int:
    """Return the peak of bytes used by tensors since the start or `reset_peak_memory_stats`."""
    check_index(device)
    return current().memory_stats().peak


def memory_reserved(device: DeviceName | None = None) -> int:
    """Return the bytes allocated on the device, including free blocks cached for reuse."""
    check_index(device)
    return current().memory_stats().reserved


def max_memory_reserved(device: DeviceName | None = None) -> int:
    """Return the peak of bytes allocated on the device since the start or `reset_peak_memory_stats`."""
    check_index(device)
    return current().memory_stats().peak_reserved


def reset_peak_memory_stats(device: DeviceName | None = None) -> None:
    """Restart the measurement of both peaks."""
    check_index(device)
    current().pool.reset_peak()


def reset_accumulated_memory_stats(device: DeviceName | None = None) -> None:
    """Raise RuntimeError: the pool cannot reset its accumulated counts."""
    raise RuntimeError("the accumulated counts of the pool cannot be reset; reset_peak_memory_stats restarts the peaks")


def memory_stats(device: DeviceName | None = None) -> OrderedDict[str, int]:
    """Return statistics of the pool under the equivalent keys of `torch.cuda.memory_stats`."""
    check_index(device)
    stats = current().memory_stats()
    return OrderedDict(
        {
            "allocated_bytes.all.current": stats.used,
            "allocated_bytes.all.peak": stats.peak,
            "num_device_alloc": stats.allocations,
            "reserved_bytes.all.current": stats.reserved,
            "reserved_bytes.all.peak": stats.peak_reserved,
        }
    )


def memory_summary(device: DeviceName | None = None, abbreviated: bool = False) -> str:
    """Return the statistics as a readable table, with the fragmentation of free blocks."""
    check_index(device)
    return str(summary_of(current()))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the bytes that can still be allocated, including free blocks of the pool, and the total bytes of the device."""
    check_index(device)
    device, stats = current(), current().memory_stats()
    return device.pool.available + stats.reserved - stats.used, device.info.memory


def empty_cache() -> None:
    """Return unused memory to the driver."""
    current().empty_cache()


def set_per_process_memory_fraction(fraction: float, device: DeviceName | None = None) -> None:
    """Limit the tensors of this process to a fraction of the device's memory. Raises ValueError outside 0 to 1."""
    check_index(device)
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction {fraction}; expected 0 to 1")
    current().set_memory_limit(int(fraction * current().info.memory))
