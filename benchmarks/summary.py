"""The summary of docs/performance.md: by device and family of workloads, the speeds relative to the fastest other framework,
and the workloads that are slower, by name."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.frameworks.pytorch_ways import best_ms
from benchmarks.tables import size_text


class MeasuredDevice(NamedTuple):
    """Hardware, and the interface through which it was used."""

    hardware: str
    interface: str


class Comparison(NamedTuple):
    """One workload on one device, with its speed divided by the fastest peer's."""

    device: MeasuredDevice
    family: str
    workload: str
    ratio: float


SHOWN = (MeasuredDevice("NVIDIA H200", "CUDA"), MeasuredDevice("two processor cores", "Intel's OpenCL"))
"""Devices whose speeds the README and the start page show."""
_FAMILIES = {
    family: re.compile(pattern)
    for family, pattern in {
        "products of few rows": r"matmul (1|2|8|16)x|matrix by vector",
        "matrix products": r"matmul|einsum",
        "decoding attention": r"attention decoding",
        "attention": r"attention",
        "convolutions": r"conv|depthwise",
        "recurrent layers": r"LSTM|GRU",
        "one small op, called eagerly": r"add 10k",
        "elementwise ops and copies": r"add|exp$|gelu|relu|greater|fused|transpose|concatenate",
        "reductions, softmax, norms": r"sum|max\b(?! pool)|argmax|softmax|.* norm|rms|layer norm|cross entropy",
        "pooling and resampling": r"max pool|interpolate",
        "scans and sorts": r"cumsum|sort|64 largest",
        "gathers and scatters": r"embedding|scatter_add|index_add|index_copy",
        "Fourier transforms": r"(complex|real|to real) ",
    }.items()
}
"""Families of the rows of kernels and layers, by the start of a row's name. The first that matches counts."""

_INTERFACES = {
    "CUDA": r"NVIDIA CUDA 1\d\.",
    "OpenCL": r"NVIDIA CUDA",
    "Vulkan": r"Vulkan (?!Mesa)",
    "Intel's OpenCL": r"Intel.*OpenCL",
    "PoCL": r"Portable Computing Language",
    "software Vulkan": r"Vulkan Mesa",
}
"""Interfaces in the order of columns, by the text of a driver. The first that matches counts."""
_AS_AMPERE = "as an Ampere GPU"
_LEAST = 1.0
"""The least ratio, in two decimals, of a workload that is as fast as its fastest peer."""
NAMES_OF_PEERS = ("PyTorch", "torch", "NumPy", "CUDA graph", "tinygrad", "netcl", "llama.cpp", "NCCL")


def comparisons(results: Iterable[Mapping[str, Any]]) -> list[Comparison]:
    """Return the comparisons of all results; a workload that was measured several times on a device counts once, by its
    latest result."""
    latest: dict[tuple[MeasuredDevice, str, str], Comparison] = {}
    for result in sorted(results, key=lambda r: r["date"]):
        for name, family, workload, ratio in _READERS.get(result["benchmark"], _nothing)(result):
            found = Comparison(device_of(result, name), family, workload, ratio)
            latest[found.device, family, workload] = found
    return list(latest.values())


def summary(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a table for each kind of hardware, and the slower workloads of each device with their ratios."""
    found = comparisons(results)
    lines = []
    for hardware in dict.fromkeys(c.device.hardware for c in found):
        own = [c for c in found if c.device.hardware == hardware]
        used = {c.device.interface for c in own}
        names = [name for name in (*_INTERFACES, _AS_AMPERE) if name in used]
        lines += [f"| {hardware} | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
        lines.append(_row("**all**", own, names))
        lines += [
            _row(family, [c for c in own if c.family == family], names)
            for family in sorted({c.family for c in own}, key=_order)
        ]
        lines.append("")
    lines += ["### Slower than the fastest other framework", ""]
    slower = sorted((c for c in found if not _is_fast(c.ratio)), key=lambda c: c.ratio)
    for hardware, interface in sorted({c.device for c in slower}):
        lines += [f"**{hardware}, {interface}**", ""]
        own = [c for c in slower if c.device == (hardware, interface)]
        for family in sorted({c.family for c in own}, key=_order):
            named = (f"{c.workload} {c.ratio:.2f}" for c in own if c.family == family)
            lines.append(f"- {family}: {'; '.join(named)}")
        lines.append("")
    return lines


def speeds_table(results: Iterable[Mapping[str, Any]], devices: Sequence[MeasuredDevice]) -> list[str]:
    """Return a table for readers in a hurry: by family and device, how many workloads are at least as fast as the fastest
    peer, the median, and the slowest one by name."""
    found = comparisons(results)
    heads = (f"{hardware}, {interface} | median | slowest" for hardware, interface in devices)
    lines = [f"| | {' | '.join(heads)} |", "|---|" + "---:|---:|---|" * len(devices)]
    for family in sorted({c.family for c in found if c.device in devices}, key=_order):
        cells = [family]
        for device in devices:
            own = [c for c in found if c.device == device and c.family == family]
            cells += _speeds(own) if own else ["", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _speeds(found: Sequence[Comparison]) -> list[str]:
    slowest = min(found, key=lambda c: c.ratio)
    reached = sum(_is_fast(c.ratio) for c in found)
    median = statistics.median(c.ratio for c in found)
    return [f"{reached} of {len(found)}", f"{median:.2f}", f"{slowest.ratio:.2f} {slowest.workload}"]


def _row(family: str, found: Sequence[Comparison], interfaces: Sequence[str]) -> str:
    cells = [family]
    for interface in interfaces:
        ratios = [c.ratio for c in found if c.device.interface == interface]
        cells.append(
            f"{sum(map(_is_fast, ratios))} of {len(ratios)}; {min(ratios):.2f}, {statistics.median(ratios):.2f}"
            if ratios
            else ""
        )
    return f"| {' | '.join(cells)} |"


def _is_fast(ratio: float) -> bool:
    return round(ratio, 2) >= _LEAST


def _order(family: str) -> tuple[int, str]:
    names = list(_FAMILIES)
    return (names.index(family) if family in names else len(names), family)


def interface_of(device: Mapping[str, str]) -> str:
    """Return the name of the interface through which a result's device was used."""
    return next(name for name, pattern in _INTERFACES.items() if re.match(pattern, device["driver"]))


def device_of(result: Mapping[str, Any], name: str) -> MeasuredDevice:
    """Return the hardware and interface of a device of a result, by its name there."""
    device = result["devices"][name]
    if _AS_AMPERE in result["place"]:
        return MeasuredDevice(device["name"], _AS_AMPERE)
    return MeasuredDevice("two processor cores" if device["type"] == "cpu" else device["name"], interface_of(device))


Found = Iterator[tuple[str, str, str, float]]
"""Name of a device in the result, family, workload and ratio."""


def _nothing(result: Mapping[str, Any]) -> Found:
    yield from ()


def _ops(result: Mapping[str, Any]) -> Found:
    for row in result["rows"]:
        timings = {n: s[0] for n, s in row["seconds"].items()}
        best = min((s for n, s in timings.items() if n.startswith(NAMES_OF_PEERS)), default=None)
        for name in result["devices"]:
            ours = timings.get(name, timings.get(f"{name} captured"))
            if best and ours:
                family = next((f for f, pattern in _FAMILIES.items() if pattern.match(row["name"])), "other")
                yield name, family, row["name"], best / ours


def _steps(result: Mapping[str, Any]) -> Found:
    family = "inference" if result["benchmark"] == "inference" else "training steps"
    for row in result["rows"]:
        ours, best = row["who"].get("captured", row["who"].get("eager")), best_ms(row["who"])
        if ours and best:
            yield row["device"], family, f"{row['what']}, {row['precision']}", best / ours["ms"]


def _torch_steps(result: Mapping[str, Any]) -> Found:
    for row in result["rows"]:
        best = best_ms(row["who"])
        if best and "recorded" in row["who"]:
            workload = f"{row['what']}, {row['precision']}"
            yield row["device"], "recorded steps of PyTorch programs", workload, best / row["who"]["recorded"]["ms"]


def _language_models(result: Mapping[str, Any]) -> Found:
    for row in result["rows"]:
        for kind, text in (("prefill", "prompt"), ("decode", "generation")):
            rates = {name: who[kind][0] for name, who in row["who"].items() if kind in who}
            best = max((rate for name, rate in rates.items() if name not in result["devices"]), default=None)
            for name in result["devices"]:
                if best and name in rates:
                    yield name, "language models", f"{row['file']}, {text}", rates[name] / best


def _onnx_models(result: Mapping[str, Any]) -> Found:
    for row in result["rows"]:
        for name in result["devices"]:
            if name in row["who"]:
                yield name, "ONNX models", row["model"], row["who"]["onnxruntime"][0] / row["who"][name][0]


def _decode(result: Mapping[str, Any]) -> Found:
    for row in result["rows"]:
        if "torch" in row:
            ratio = row["torch"]["seconds"][0] / row["polyhal"]["seconds"][0]
            yield row["device"], "language models", f"GPT-2, {row['dtype']}, generation", ratio


def _linalg(result: Mapping[str, Any]) -> Found:
    for row in result["rows"]:
        timings = {n: s[0] for n, s in row["seconds"].items()}
        best = min((s for n, s in timings.items() if n not in result["devices"]), default=None)
        for name in result["devices"]:
            if best and name in timings:
                workload = f"{row['function']} of {' x '.join(map(str, row['shape']))}"
                yield name, "linear algebra", workload, best / timings[name]


def _collectives(result: Mapping[str, Any]) -> Found:
    name = next(iter(result["devices"]))
    for row in result["rows"]:
        seconds = row["seconds"]
        if {"Polyhal", "NCCL"} <= seconds.keys():
            workload = f"{row['kind']} of {size_text(row['nbytes'])} {row['dtype']}"
            yield name, "collectives of two devices", workload, seconds["NCCL"][0] / seconds["Polyhal"][0]


_READERS = {
    "kernels": _ops,
    "layers": _ops,
    "fft": _ops,
    "training_step": _steps,
    "inference": _steps,
    "torch_steps": _torch_steps,
    "language_models": _language_models,
    "onnx_models": _onnx_models,
    "decode": _decode,
    "linalg": _linalg,
    "collectives": _collectives,
}
