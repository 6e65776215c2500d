"""Memory of the device: figures of Polyhal's pool, under the names of `torch.cuda`."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from polyhal.hal.diagnostics.memory_summary import memory_summary as summary_of
from polyhal.torch.device import current
from polyhal.torch.device_module.devices import check_index

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


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors use."""
    check_index(device)
    return current().memory_stats().used


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors used at once since the start or `reset_peak_memory_stats`."""
    check_index(device)
    return current().memory_stats().peak


def memory_reserved(device: Any = None) -> int:
    """Bytes that were taken from the device, free blocks that are kept for reuse included."""
    check_index(device)
    return current().memory_stats().reserved


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were taken from the device at once since the start or `reset_peak_memory_stats`."""
    check_index(device)
    return current().memory_stats().peak_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Restart the measurement of both peaks from now."""
    check_index(device)
    current().pool.reset_peak()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Raise RuntimeError: the pool counts from its start."""
    raise RuntimeError("the counts of the pool cannot begin anew; reset_peak_memory_stats restarts the peaks")


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """What the pool knows, under those keys of `torch.cuda.memory_stats` that mean the same."""
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


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The same for people, with how fragmented the free blocks are."""
    check_index(device)
    return str(summary_of(current()))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes that can still be taken, free blocks of the pool included, and all bytes of the device."""
    check_index(device)
    device, stats = current(), current().memory_stats()
    return device.pool.available + stats.reserved - stats.used, device.info.memory


def empty_cache() -> None:
    """Give unused memory back to the driver."""
    current().empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let tensors of this process take at most a share of the device's memory. Raises ValueError outside 0 to 1."""
    check_index(device)
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction {fraction}; expected 0 to 1")
    current().set_memory_limit(int(fraction * current().info.memory))
