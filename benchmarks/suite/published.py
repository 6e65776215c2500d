"""Forecasts compared with published training speeds, for clusters that are not available. Nothing is measured."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.arguments import make_parser
from benchmarks.result_files import write
from polyhal.forecast.cluster import parse_cluster
from polyhal.forecast.forecaster import Forecaster
from polyhal.forecast.recipes import gpt_recipe
from polyhal.forecast.search import search
from polyhal.forecast.strategy import Constraints
from polyhal.models import GPTConfig

_VOCABULARY, _CONTEXT = 51200, 2048
_LINKS = "nvlink3,8xinfiniband-hdr"
"""NVIDIA's cluster Selene: nodes of 8 A100 with 8 ports of 200 Gbit/s."""


class PublishedRun(NamedTuple):
    """A row of table 1 of Narayanan et al., arXiv:2104.04473."""

    billions: float
    """Parameters."""
    layers: int
    width: int
    heads: int
    tensor: int
    pipeline: int
    devices: int
    batch: int
    teraflops: float
    """Operations per second of each device, including recomputed layers."""


RUNS = (
    PublishedRun(1.7, 24, 2304, 24, 1, 1, 32, 512, 137),
    PublishedRun(7.5, 36, 4096, 32, 4, 1, 128, 512, 142),
    PublishedRun(18.4, 40, 6144, 48, 8, 1, 256, 1024, 135),
    PublishedRun(39.1, 48, 8192, 64, 8, 2, 512, 1536, 138),
    PublishedRun(145.6, 80, 12288, 96, 8, 8, 1536, 2304, 148),
    PublishedRun(1008.0, 128, 25600, 160, 8, 64, 3072, 3072, 163),
)


def operations(run: PublishedRun) -> float:
    """Return floating-point operations of a step by the paper's equation 3."""
    per_layer = 1 + _CONTEXT / (6 * run.width) + _VOCABULARY / (16 * run.layers * run.width)
    return 96.0 * run.batch * _CONTEXT * run.layers * run.width**2 * per_layer


def forecast(run: PublishedRun) -> dict[str, Any]:
    """Return the forecast of a run with its degrees of parallelism, and with the best size of micro-batches."""
    config = GPTConfig(
        vocab_size=_VOCABULARY, block_size=_CONTEXT, n_layer=run.layers, n_head=run.heads, n_embd=run.width
    )
    cluster = parse_cluster(f"{run.devices}xa100", _LINKS)
    required = Constraints(tensor=run.tensor, pipeline=run.pipeline, shard="none", recompute=True)
    found = search(Forecaster(gpt_recipe("gpt", config), cluster, "float16"), cluster, run.batch, required)
    best = found.fitting[0] if found.fitting else found.too_large[0]
    return {
        **run._asdict(),
        "strategy": str(best.strategy),
        "forecast_teraflops": operations(run) / best.seconds / run.devices / 1e12,
        "waiting": best.communication_share,
        "memory_gib": best.memory.total / 2**30,
        "fits": bool(found.fitting),
    }


def main(arguments: Sequence[str]) -> int:
    args = make_parser("published", __doc__).parse_args(arguments)
    result: dict[str, Any] = {"benchmark": "published", "date": datetime.date.today().isoformat(), "rows": []}
    for run in RUNS:
        row = forecast(run)
        result["rows"].append(row)
        ratio = row["forecast_teraflops"] / run.teraflops
        print(
            f"{run.billions:7.1f} billion on {run.devices:4} devices: published {run.teraflops:.0f} TFLOP/s, "
            f"forecast {row['forecast_teraflops']:.0f} ({ratio:.2f}), {row['strategy']}, {row['memory_gib']:.0f} GiB",
            flush=True,
        )
        write(args.json, result)
    return 0
