"""The tables of results on docs/performance.md and docs/simulator.md: lines of Markdown for the results of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.frameworks.pytorch_ways import PEER, best_ms
from benchmarks.suite.peak import Peak


def flops_text(rate: float) -> str:
    """Return a rate of operations with its unit."""
    return f"{rate / 1e12:.1f} TFLOP/s" if rate >= 1e12 else f"{rate / 1e9:.0f} GFLOP/s"


def size_text(nbytes: float) -> str:
    """Return a size in KiB or MiB."""
    return f"{nbytes / 2**20:,.0f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:,.0f} KiB"


def _spread(low: float, median: float, high: float) -> str:
    return f"±{(high - low) / 2 / median:.1%}"


def rate_text(row: Mapping[str, Any], median: float) -> str:
    """Return the rate of a row, or the time of one that measures the host."""
    if row["wall"]:
        return f"{median * 1e6:.1f} µs"
    return flops_text(row["flops"] / median) if row["flops"] else f"{row['nbytes'] / median / 1e9:,.0f} GB/s"


def _rate(row: Mapping[str, Any], timing: tuple[float, float, float]) -> str:
    median, low, high = timing
    return f"{rate_text(row, median)} {_spread(low, median, high)}"


def share_text(row: Mapping[str, Any], median: float, peak: Peak) -> str:
    """Return the fraction of the rate that limits a row; empty if none is known."""
    possible = peak.rate(row["limit"])
    return f"{(row['flops'] or row['nbytes']) / median / possible:.0%}" if possible else ""


def kernels_table(result: dict[str, Any]) -> list[str]:
    """Return the rate of each op, its fraction of the device's peak, and its speed relative to the fastest other
    framework."""
    limits = {name: Peak(**limit) for name, limit in result["limits"].items()}
    names = list(dict.fromkeys(n for row in result["rows"] for n in (*row["seconds"], *row["left_out"])))
    ours, peers = [n for n in names if n in limits], [n for n in names if n not in limits]
    head = ["op", "shapes", *(c for n in ours for c in (f"`{n}`", "of peak", "speedup")), *peers]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    for row in result["rows"]:
        seconds = row["seconds"]
        best = min((seconds[n][0] for n in peers if n in seconds), default=None)
        cells = [row["name"], ", ".join("x".join(map(str, s)) for s in row["shapes"])]
        for n in ours:
            if n in seconds:
                median = seconds[n][0]
                cells += [
                    _rate(row, seconds[n]),
                    share_text(row, median, limits[n]),
                    f"{best / median:.2f}" if best else "",
                ]
            else:
                cells += ["-", "", ""]
        cells += [_rate(row, seconds[n]) if n in seconds else "-" for n in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def layers_table(result: dict[str, Any]) -> list[str]:
    """Return times, the times at the device's limits, and the speed relative to the fastest way to run PyTorch."""
    limits = result["limits"]
    names = list(dict.fromkeys(n for row in result["rows"] for n in row["seconds"]))
    peers = [n for n in names if not any(n.startswith(f"{device} ") for device in limits)]
    ours = [n for n in names if n not in peers]
    head = ["workload", "bytes", "operations", "limit", *(c for n in ours for c in (f"`{n}`", "speedup")), *peers]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for row in result["rows"]:
        seconds = row["seconds"]
        best = min((seconds[n][0] for n in peers if n in seconds), default=None)
        limit = layer_limit(result, row)
        cells = [
            row["name"],
            f"{row['nbytes'] / 1e6:,.0f} MB",
            f"{row['flops'] / 1e9:,.2f} G",
            milliseconds_text(limit),
        ]
        for n in ours:
            cells += (
                [_duration(seconds[n]), f"{best / seconds[n][0]:.2f}" if best else ""] if n in seconds else ["-", ""]
            )
        cells += [_duration(seconds[n]) if n in seconds else "-" for n in peers]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def layer_limit(result: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """Return the seconds that a row's bytes and operations need at the rates of the fastest device."""
    limits = result["limits"].values()
    bytes_per_s, flops_per_s = (max(limit[kind] for limit in limits) for kind in ("bytes_per_s", "flops_per_s"))
    return max(row["nbytes"] / bytes_per_s, row["flops"] / flops_per_s if flops_per_s else 0.0)


def milliseconds_text(seconds: float) -> str:
    """Return a time in milliseconds."""
    return f"{seconds * 1e3:,.2f} ms"


def _duration(timing: Sequence[float]) -> str:
    median, low, high = timing
    return f"{milliseconds_text(median)} {_spread(low, median, high)}"


def _step(row: Mapping[str, Any], who: str) -> str:
    if who not in row["who"]:
        return ""
    t = row["who"][who]
    time = f"{t['ms']:.2f} ms" if t["ms"] >= 1 else f"{t['ms'] * 1e3:.0f} µs"
    text = f"{time} {_spread(t['low_ms'], t['ms'], t['high_ms'])}"
    return f"{row['items'] / t['ms'] * 1e3:,.0f} tokens/s, {text}" if row["tokens"] else text


def _mebibytes(row: Mapping[str, Any], who: str) -> str:
    peak = row["who"].get(who, {}).get("peak")
    return f"{peak / 2**20:,.0f}" if peak else ""


def training_step_table(result: dict[str, Any]) -> list[str]:
    """Time per step of every competitor, the speed relative to PyTorch's best, memory, and the first step."""
    everyone = list(dict.fromkeys(who for row in result["rows"] for who in row["who"]))
    head = [
        "model",
        "precision",
        "device",
        *everyone,
        "speedup over PyTorch's best",
        "peak MiB",
        "PyTorch's",
        "first step",
    ]
    lines = ["| " + " | ".join(head) + " |", "|---|---|---|" + "---:|" * (len(head) - 3)]
    for row in result["rows"]:
        best = row["who"].get("captured", row["who"].get("eager"))
        peer = best_ms(row["who"])
        cells = [
            row["what"],
            row["precision"],
            f"`{row['device']}`",
            *(_step(row, who) for who in everyone),
            f"{peer / best['ms']:.2f}" if peer else "",
            _mebibytes(row, "captured"),
            _mebibytes(row, PEER),
            f"{best['first_s']:.2f} s" if "first_s" in best else "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def median_text(values: Sequence[float], form: str) -> str:
    """Return a median in a format, with its spread."""
    median, low, high = values
    return f"{median:{form}} {_spread(low, median, high)}"


def replay_table(result: dict[str, Any]) -> list[str]:
    """Return host time per launch: of captured steps, of bare calls of the driver, of eager steps."""
    lines = [
        "| device | launches | captured step, µs per launch | bare driver calls | eager step | above the driver |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        bare = next(name for name in row["who"] if name.startswith("bare"))
        rates = " | ".join(median_text(row["who"][who], ".2f") for who in ("captured step", bare, "eager step"))
        lines.append(f"| `{row['device']}` | {row['launches']} | {rates} | {row['above']:.2f} |")
    return lines


def onnx_models_table(result: dict[str, Any]) -> list[str]:
    """Return milliseconds per call of ONNX models, and speeds relative to onnxruntime."""
    lines = [
        "| model | onnxruntime, ms | device | ms | speed, onnxruntime = 1 | largest difference |",
        "|---|---:|---|---:|---:|---:|",
    ]
    for row in result["rows"]:
        peer = row["who"]["onnxruntime"]
        for device, times in row["who"].items():
            if device != "onnxruntime":
                both = [median_text([1e3 * t for t in ts], ".2f") for ts in (peer, times)]
                ratio = f"{peer[0] / times[0]:.2f} | {row['difference']:.0e}"
                lines.append(f"| {row['model']} | {both[0]} | `{device}` | {both[1]} | {ratio} |")
    return lines


def overlap_table(result: dict[str, Any]) -> list[str]:
    """Return copies, kernels, both at once, and loops that load their data ahead or on demand."""
    lines = [
        "| device | batches | copies, ms | kernels | both at once | loop, prefetched | loop, on demand |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        spans = " | ".join(f"{row[part] * 1e3:.1f}" for part in ("copies", "kernels", "both"))
        loops = " | ".join(median_text([t * 1e3 for t in times], ".0f") for times in row["loops"].values())
        lines.append(f"| `{row['device']}` | {row['batches']} of {row['megabytes']} MiB | {spans} | {loops} |")
    return lines


def read_back_table(result: dict[str, Any]) -> list[str]:
    """Time per turn of a loop that reads results: of the device, of the host, and of both."""
    lines = [
        "| device | device only, ms per turn | host only | `numpy` | `numpy_async` |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        loops = " | ".join(median_text([t * 1e3 for t in times], ".1f") for times in row["loops"].values())
        lines.append(f"| `{row['device']}` | {loops} |")
    return lines


def exported_steps_table(result: dict[str, Any]) -> list[str]:
    """Return for each model and target milliseconds per step, its ratio to the peer's, and the difference of the results."""
    rows = result["rows"]
    columns = {(r["target"], r["device"]): r.get("peer", "") for r in sorted(rows, key=lambda r: r["target"] != "xla")}
    for r in rows:
        columns[r["target"], r["device"]] = r.get("peer", "") or columns[r["target"], r["device"]]
    heads = [f"{_TARGETS[target]}, `{device}`, against {peer}" for (target, device), peer in columns.items()]
    lines = ["| step | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for what in dict.fromkeys(r["what"] for r in rows):
        found = {(r["target"], r["device"]): r for r in rows if r["what"] == what}
        cells = [_exported_cell(found.get(column)) for column in columns]
        lines.append("| " + " | ".join([what, *cells]) + " |")
    return lines


_TARGETS = {"xla": "XLA", "c": "C", "page": "page in Chromium"}


def _exported_cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not measured"
    if "reason" in row:
        return str(row["reason"])
    ours, peer = row["seconds"][0], row["peer_seconds"][0]
    bits = "same bits" if not row["difference"] else f"within {row['difference']:.0e}"
    return f"{ours * 1e3:.2f} ms, {ours / peer:.2f} of its time, {bits}"


def openvino_steps_table(result: dict[str, Any]) -> list[str]:
    """Return milliseconds per run of models that OpenVINO imported, and that were captured for it."""
    lines = ["| model | programs | imported from PyTorch, ms per run | captured | ratio |", "|---|---:|---:|---:|---:|"]
    for row in result["rows"]:
        seconds = (row[f"{who}_seconds"] for who in ("imported", "captured"))
        steps = " | ".join(f"{t['median'] * 1e3:.2f} {_spread(t['low'], t['median'], t['high'])}" for t in seconds)
        lines.append(f"| {row['model']} | {row['programs']} | {steps} | {row['ratio']:.2f} |")
    return lines


def pairs_table(result: dict[str, Any]) -> list[str]:
    """Return steps of one device, of the other, and of both, with rows divided evenly and by speed."""
    lines = [
        "| model | rows | devices | first only | second only | pair, even rows | pair, rows by speed | at most |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        alone = row["who"]["first"]["ms"]
        cells = [row["what"], str(row["batch"]), " and ".join(f"`{d}`" for d in row["devices"])]
        for who in ("first", "second", "pair, even", "pair, by speed"):
            t = row["who"].get(who)
            cells.append(f"{t['ms']:.1f} ms {_spread(t['low_ms'], t['ms'], t['high_ms'])}" if t else "")
            cells[-1] += f", {alone / t['ms']:.2f}x" if t and who.startswith("pair") else ""
        lines.append("| " + " | ".join([*cells, f"{row['most']:.2f}x"]) + " |")
    return lines


def processes_table(result: dict[str, Any]) -> list[str]:
    """Return steps of one device, of all devices in one process, and in a process each."""
    lines = [
        "| model | precision | samples each | devices | one device | one process, all devices | processes | of them |",
        "|---|---|---:|---|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        devices = " and ".join(f"`{d}`" for d in row["devices"])
        cells = [row["what"], row["precision"], str(row["samples"]), devices]
        several = f"{len(row['devices'])} devices, one process"
        for who in ("one device", several, f"{row['processes']} processes"):
            t = row["who"].get(who)
            cells.append(f"{t['ms']:.1f} ms {_spread(t['low_ms'], t['ms'], t['high_ms'])}" if t else "")
        lines.append("| " + " | ".join([*cells, str(row["processes"])]) + " |")
    return lines


def collectives_table(result: dict[str, Any]) -> list[str]:
    """Return bus bandwidth and time of each collective."""
    everyone = list(dict.fromkeys(who for row in result["rows"] for who in row["seconds"]))
    head = ["collective", "devices", "dtype", "size", *everyone]
    lines = ["| " + " | ".join(head) + " |", "|---|---:|---|---:|" + "---:|" * len(everyone)]
    for row in result["rows"]:
        cells = [f"`{row['kind']}`", str(row["size"]), row["dtype"], size_text(row["nbytes"])]
        for who in everyone:
            t = row["seconds"].get(who)
            cells.append(f"{row['bus_bytes'] / t[0] / 1e9:,.2f} GB/s, {_duration(t)}" if t else "-")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def links_table(result: dict[str, Any]) -> list[str]:
    """Return bandwidth of copies between devices, one way and both ways."""
    lines = ["| from | to | way | MiB | GB/s | both ways |", "|---|---|---|---:|---:|---:|"]
    for row in result["rows"]:
        both = f"{2 * row['bytes'] / row['both_seconds'] / 1e9:.1f}" if row["both_seconds"] else ""
        rate = f"{row['bytes'] / row['seconds'] / 1e9:.1f}"
        place = f"| `{row['from']}` | `{row['to']}` | {row['way']}"
        lines.append(f"{place} | {row['bytes'] / 2**20:g} | {rate} | {both} |")
    return lines


def startup_table(result: dict[str, Any]) -> list[str]:
    """Return seconds from the start of a process to its first step, with and without caches."""
    lines = ["| framework | caches | seconds from process start to the end of the first step |", "|---|---|---:|"]
    for row in result["rows"]:
        median, low, high = row["seconds"]
        lines.append(f"| {row['name']} | {row['state']} | {median:.2f} {_spread(low, median, high)} |")
    return lines


def overhead_table(result: dict[str, Any]) -> list[str]:
    """Return microseconds per op."""
    lines = ["| `a + b` | µs per op |", "|---|---:|"]
    return [*lines, *(f"| {row['what']} | {median_text(row['us'], '.2f')} |" for row in result["rows"])]


def optimizers_table(result: dict[str, Any]) -> list[str]:
    """Return launches and milliseconds of steps on the small parameters, before a change if that was measured, and now."""
    ways = ("eager", "captured", "PyTorch, foreach", "PyTorch, recorded")
    before = {(row["device"], row["parameters"], row["optimizer"]): row["steps"] for row in result.get("before", ())}
    lines = [f"| optimizer | device | {' | '.join(ways)} |", "|---|---|" + "---:|" * len(ways)]
    for row in (r for r in result["rows"] if r["parameters"] == "24 small"):
        earlier = before.get((row["device"], row["parameters"], row["optimizer"]), {})
        cells = [" → ".join(_launches(steps[way]) for steps in (earlier, row["steps"]) if way in steps) for way in ways]
        lines.append(f"| {row['optimizer']} | `{row['device']}` | {' | '.join(cells)} |")
    return lines


def _launches(step: Mapping[str, Any]) -> str:
    return f"{step['launches']:,}: {step['ms'][0]:.1f} ms"


def linalg_table(result: dict[str, Any]) -> list[str]:
    """Return milliseconds of each function by each device and framework."""
    names = list(dict.fromkeys(name for row in result["rows"] for name in row["seconds"]))
    lines = [f"| function | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for row in result["rows"]:
        cells = (f"{row['seconds'][n][0] * 1e3:,.2f} ms" if n in row["seconds"] else "" for n in names)
        lines.append(
            f"| {row['function']} of {' x '.join(map(str, row['shape']))}, {row['dtype']} | {' | '.join(cells)} |"
        )
    return lines


def peak_table(result: dict[str, Any]) -> list[str]:
    """Return bandwidth of copies, and the rate of multiply-adds."""
    lines = ["| device | copies | multiply-adds |", "|---|---:|---:|"]
    for row in result["rows"]:
        rates = f"{row['bytes_per_s'] / 1e9:,.1f} GB/s | {flops_text(row['flops_per_s']) if row['flops_per_s'] else ''}"
        lines.append(f"| `{row['device']}` | {rates} |")
    return lines


def prediction_table(result: dict[str, Any]) -> list[str]:
    """Return measured and predicted times of steps."""
    clock = "The processor's time on one core, so that other work on the machine does not count."
    lines = [
        *([clock, ""] if result.get("one_core") else []),
        "| model | precision | device | measured | machine's speed | predicted | predicted : measured |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        measured = f"{_significant(row['ms'])} ms {_spread(row['low_ms'], row['ms'], row['high_ms'])}"
        predicted = f"{_significant(row['predicted_ms'])} ms | {row['predicted_ms'] / row['ms']:.2f}"
        lines.append(
            f"| {row['what']} | {row['precision']} | `{row['device']}` | {measured} | {row['speed']:.2f} | {predicted} |"
        )
    return lines


def _significant(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def model_parallel_table(result: dict[str, Any]) -> list[str]:
    """Return steps of one model on several devices, and forecasts of them."""
    lines = [
        "| model | precision | way | devices | measured | times one device | predicted |",
        "|---|---|---|---|---:|---:|---:|",
    ]
    for row in result["rows"]:
        spread = (row["high_ms"] - row["low_ms"]) / 2 / row["ms"]
        predicted = f"{row['predicted_ms']:.2f} ms" if row["predicted_ms"] else ""
        lines.append(
            f"| {row['what']} | {row['precision']} | {row['way']} | {len(row['devices'])} x `{row['devices'][0]}` | "
            f"{row['ms']:.2f} ms ±{100 * spread:.1f}% | {row['speedup']:.2f} | {predicted} |"
        )
    return lines
