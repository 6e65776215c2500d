"""Tables of measured rows inside pages that are otherwise written by hand, such as docs/kernel-designs.md.

A comment names a result file and rows of it, and the table follows up to the next comment:

    <!-- Measured in h200-kernels: softmax; layer norm -->
    <!-- End of the measured table -->

`<!-- Limits in NAME -->` is followed by the device's limits of that result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.suite.peak import Peak
from benchmarks.summary import NAMES_OF_PEERS, interface_of
from benchmarks.tables import flops_text, layer_limit, milliseconds_text, rate_text, share_text

_BLOCK = re.compile(
    r"(?P<head><!-- (?P<kind>Measured|Limits) in (?P<file>[\w-]+)(?:: (?P<rows>[^>]*?))? -->\n)"
    r".*?(?P<end><!-- End of the measured table -->)",
    re.DOTALL,
)


def with_tables(text: str, result_of: Callable[[str], dict[str, Any]]) -> str:
    """Return a page with its tables regenerated; `result_of` returns the result of a file by its name.

    Raises ValueError if a row that the page names is not in the file.
    """

    def replaced(found: re.Match[str]) -> str:
        result = result_of(found["file"])
        if found["kind"] == "Limits":
            lines = list(_limits(result))
        else:
            names = found["rows"].split("; ")
            lines = [*_head(result), *(line for name in names for line in _lines(result, name, found["file"]))]
        return found["head"] + "\n".join(["", *lines, "", found["end"]])

    return _BLOCK.sub(replaced, text)


def _head(result: Mapping[str, Any]) -> list[str]:
    (hardware,) = {device["name"] for device in result["devices"].values() if device["type"] == "gpu"} or {
        f"two cores of {result['processor']}"
    }
    return [
        f"| {hardware}, {result['date']} | through | measured | of the limit | fastest peer = 1 |",
        "|---|---|---:|---:|---:|",
    ]


def _lines(result: Mapping[str, Any], name: str, file: str) -> Iterator[str]:
    row = next((r for r in result["rows"] if r.get("name", r.get("file")) == name), None)
    if row is None:
        raise ValueError(f"{file}.json has no row {name!r}; correct the comment in the page")
    for device, (text, share, ratio) in _READERS[result["benchmark"]](result, row):
        interface = interface_of(result["devices"][device])
        yield f"| {name} | {interface} | {text} | {share} | {ratio} |"


_Cells = Iterator[tuple[str, tuple[str, str, str]]]
"""Name of a device, and the texts of the figure, its share of the limit, and its ratio to the fastest peer."""


def _ops(result: Mapping[str, Any], row: Mapping[str, Any]) -> _Cells:
    best = _fastest_peer(row)
    for device in result["devices"]:
        if device in row["seconds"]:
            median = row["seconds"][device][0]
            share = share_text(row, median, Peak(**result["limits"][device]))
            yield device, (rate_text(row, median), share, f"{best / median:.2f}" if best else "")


def _layers(result: Mapping[str, Any], row: Mapping[str, Any]) -> _Cells:
    best, limit = _fastest_peer(row), layer_limit(result, row)
    for device in result["devices"]:
        if (timing := row["seconds"].get(f"{device} captured")) is not None:
            ratio = f"{best / timing[0]:.2f}" if best else ""
            yield device, (milliseconds_text(timing[0]), f"{limit / timing[0]:.0%}", ratio)


def _language_models(result: Mapping[str, Any], row: Mapping[str, Any]) -> _Cells:
    rates = {name: who["decode"][0] for name, who in row["who"].items() if "decode" in who}
    best = max((rate for name, rate in rates.items() if name not in result["devices"]), default=None)
    fastest = max(result["reads"].values())
    for device in result["devices"]:
        if device in rates:
            share = rates[device] * row["bytes"] / result["reads"].get(device, fastest)
            yield (
                device,
                (f"{rates[device]:,.0f} tokens/s", f"{share:.0%}", f"{rates[device] / best:.2f}" if best else ""),
            )


def _fastest_peer(row: Mapping[str, Any]) -> float | None:
    return min((s[0] for n, s in row["seconds"].items() if n.startswith(NAMES_OF_PEERS)), default=None)


def _limits(result: Mapping[str, Any]) -> Iterator[str]:
    yield "| device | through | copies | multiply-adds, float32 | ridge, operations per byte |"
    yield "|---|---|---:|---:|---:|"
    for name, limit in result["limits"].items():
        device = result["devices"][name]
        copies, multiplies = limit["bytes_per_s"], limit["flops_per_s"]
        rates = f"{copies / 1e9:,.0f} GB/s | {flops_text(multiplies)} | {multiplies / copies:.1f}"
        yield f"| {device['name']} | {interface_of(device)} | {rates} |"


_READERS = {"kernels": _ops, "fft": _ops, "layers": _layers, "language_models": _language_models}
