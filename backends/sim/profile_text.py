"""Text of a measured card: TOML, with a comment for each figure."""

from __future__ import annotations

from polyhal.backends.sim.fitting import FittedProfile, FittedRate, fit, shares
from polyhal.hal.system.diagnostics.measurements import MeasuredDevice, Measurements

_GIB = 1 << 30
_WATCHDOG_SECONDS = 30


def profile_text(measured: Measurements) -> str:
    """Return the text of a card with the profile of the device. Raises ValueError if too few measurements are usable."""
    fitted = fit(measured)
    parts = [
        _head(measured),
        _device(measured.facts, fitted),
        _peak(measured, fitted),
        _efficiency(fitted),
        _cache(fitted),
        _shapes(fitted),
        _driver(measured, fitted),
        _link(measured, fitted),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(measured: Measurements) -> list[str]:
    facts = measured.facts
    how = f"on {measured.when} in {measured.seconds:.0f} s, with {len(measured.samples)} micro-benchmarks"
    return [f"# {facts.name}, driver {facts.driver}.", f"# Measured by `polyhal sim calibrate` {how}."]


def _device(facts: MeasuredDevice, fitted: FittedProfile) -> list[str]:
    memory = fitted.memory
    return [
        f"title = {_quoted(facts.name)}",
        f"vendor = {_quoted(facts.vendor)}",
        f"type = {_quoted(facts.type)}",
        "",
        "[performance]",
        f"compute_units = {facts.compute_units}",
        "# Drivers do not report it, and no predicted time depends on it.",
        "clock_mhz = 0",
        f"memory_gib = {_number(facts.memory / _GIB)}",
        f"max_allocation_gib = {_number(facts.max_allocation / _GIB)}",
        f"local_memory_kib = {facts.local_memory >> 10}",
        f"# Sums of vectors of more than {_size(memory.cache)}." if memory.cache else "# Sums of vectors of all sizes.",
        f"bandwidth_gb_s = {_number(memory.bandwidth / 1e9)}",
    ]


def _peak(measured: Measurements, fitted: FittedProfile) -> list[str]:
    known = [d for d in fitted.peak if measured.peak.get(d, 0.0) == fitted.peak[d]]
    registers = f"Multiply-adds in registers: {', '.join(known)}. " if known else ""
    others = "" if len(known) == len(fitted.peak) else "Others: the rate of the fastest kernels, or of float32."
    return [
        "[performance.peak_tflop_s]",
        f"# {registers}{others}".rstrip(),
        *(f"{d} = {_number(rate / 1e12)}" for d, rate in fitted.peak.items()),
    ]


def _efficiency(fitted: FittedProfile) -> list[str]:
    lines, found = ["[performance.efficiency]"], shares(fitted)
    for kind in ("default", *sorted(found.keys() - {"default"})):
        lines += [f"# {_explained(fitted.rates[kind])}", f"{kind} = {_number(found[kind].flops)}"]
    return [*lines, "# Included in the bandwidth.", "memory = 1"]


def _explained(rate: FittedRate) -> str:
    count = f"{rate.measurements} measurement{'s' * (rate.measurements != 1)}"
    if rate.is_memory:
        return f"{_number(rate.flops / 1e9)} GFLOP/s, bound by memory, in {count}"
    return f"{_number(rate.flops / 1e9)} GFLOP/s, the mean of {count}, with a spread of {100 * rate.spread:.0f} %"


def _cache(fitted: FittedProfile) -> list[str]:
    memory = fitted.memory
    if not memory.cache:
        return []
    return [
        "[performance.cache]",
        "# Sums of vectors up to this size are faster.",
        f"size_mib = {_number(memory.cache / (1 << 20))}",
        f"bandwidth_gb_s = {_number(memory.cache_bandwidth / 1e9)}",
    ]


def _shapes(fitted: FittedProfile) -> list[str]:
    found = fitted.convolutions
    lines = [f"# Fitted to all convolutions; predicted times are off by {100 * found.error:.0f} %."]
    if found.half_row:
        lines.append(f"half_row = {_number(found.half_row)}")
    if found.packing:
        rates = ", ".join(f"{o} = {_number(rate / 1e9)}" for o, rate in found.packing.items())
        lines.append(f"packing_gb_s = {{ {rates} }}")
    return ["[performance.shapes]", *lines] if len(lines) > 1 else []


def _driver(measured: Measurements, fitted: FittedProfile) -> list[str]:
    driver = measured.driver
    return [
        "[performance.overhead]",
        "# Time per tiny kernel; if the host is slower: the time of a sum of vectors, extrapolated to length 0.",
        f"launch_us = {_number(fitted.launch * 1e6)}",
        "# Host time of a captured step without kernels, and of each kernel in it.",
        f"submit_us = {_number(driver.submit * 1e6)}",
        f"replay_us = {_number(driver.replay * 1e6)}",
        "# Time from the end of a kernel until the waiting host continues.",
        f"sync_us = {_number(fitted.sync * 1e6)}",
        "# Not measured.",
        f"watchdog_s = {_WATCHDOG_SECONDS}",
    ]


def _link(measured: Measurements, fitted: FittedProfile) -> list[str]:
    unified = measured.facts.unified_memory
    return [
        "[links.host]",
        f"kind = {_quoted('shared memory' if unified else 'unknown')}",
        "# Reads of tensors to the host, and the remaining time of a small one.",
        f"bandwidth_gb_s = {_number(measured.link.bandwidth / 1e9)}",
        f"latency_us = {_number(fitted.latency * 1e6)}",
        "# Not measured.",
        "dma_engines = 1",
        f"unified_memory = {str(unified).lower()}",
    ]


def _number(value: float) -> str:
    """Format with four digits and without an exponent."""
    text = f"{value:.4g}"
    return text if "e" not in text else f"{float(text):.12f}".rstrip("0").rstrip(".")


def _size(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.3g} MiB"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
