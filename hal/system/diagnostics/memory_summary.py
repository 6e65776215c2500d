"""`polyhal.memory_summary`: the memory of a device in figures."""

from __future__ import annotations

from dataclasses import dataclass

from polyhal.hal.device import Device
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.system.checks.memory_history import history

_SHOWN = 20
"""Maximum number of listed modules."""


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """The memory of one device, in bytes; `str` makes it readable."""

    device: str
    live: int
    """Bytes in use by tensors and captured steps."""
    pooled: int
    """Bytes of free blocks kept for reuse."""
    peak: int
    """Maximum bytes live at once."""
    largest_free: int
    """Bytes of the largest free block."""
    available: int
    """Bytes that can still be allocated from the device."""
    limit: int | None
    """Limit set by `Device.set_memory_limit`; None for no limit."""
    allocations: int
    reuses: int
    modules: tuple[tuple[str, int, int], ...] = ()
    """Module, bytes and blocks of live memory; only within `polyhal.record_memory_history`."""

    @property
    def reserved(self) -> int:
        """Return the bytes that the process has allocated from the device."""
        return self.live + self.pooled

    @property
    def fragmentation(self) -> float:
        """Return the fraction of free bytes outside of the largest free block: 0 for one block or none."""
        return 1 - self.largest_free / self.pooled if self.pooled else 0.0

    def __str__(self) -> str:
        scattered = f"{self.fragmentation:.0%} of it not in the largest block, {_mib(self.largest_free)} MiB"
        limit = f", limited to {_mib(self.limit)} MiB" if self.limit is not None else ""
        asked = self.allocations + self.reuses
        lines = [
            f"{self.device}: {_mib(self.reserved)} MiB reserved{limit}",
            f"  live       {_mib(self.live):>10} MiB  at most {_mib(self.peak)} MiB",
            f"  pooled     {_mib(self.pooled):>10} MiB  {scattered}",
            f"  available  {_mib(self.available):>10} MiB",
            f"  {asked} blocks were allocated, {self.reuses} of them by reuse of free blocks",
        ]
        if self.modules:
            lines.append("  live, by module:")
        for name, nbytes, blocks in self.modules[:_SHOWN]:
            lines.append(f"  {_mib(nbytes):>10} MiB  {name}  ({blocks} block{'s' if blocks != 1 else ''})")
        if len(self.modules) > _SHOWN:
            rest = sum(nbytes for _, nbytes, _ in self.modules[_SHOWN:])
            lines.append(f"  {_mib(rest):>10} MiB  in {len(self.modules) - _SHOWN} more")
        return "\n".join(lines)


@top_level
def memory_summary(device: Device | str | None = None) -> MemorySummary:
    """Summarize the memory of a device, by default the default device: `print(polyhal.memory_summary(device))`.

    Live, pooled and available bytes, the peak, and the fragmentation of the free blocks. Within a block of
    `polyhal.record_memory_history`, also the bytes of each module. Compare `torch.cuda.memory_summary`.
    """
    target = Device(device)
    stats, recorded = target.memory_stats(), history()
    return MemorySummary(
        str(target),
        stats.used,
        stats.reserved - stats.used,
        stats.peak,
        stats.largest_free,
        target.pool.available,
        target.pool.limit,
        stats.allocations,
        stats.reuses,
        tuple(recorded.by_module(target)) if recorded is not None else (),
    )


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.2f}"
