"""Tokens per second of training the default GPT, beside PyTorch on the same machine in the same run.

python -m benchmarks.train_gpt [--devices opencl:0,numpy] [--batch 64 --context 256 --width 384] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import polyhal
from benchmarks.machine import describe
from benchmarks.measure import Timing, alternate
from polyhal import Device
from polyhal.hal.registry import registry
from polyhal.models import GPT, GPTConfig
from polyhal.nn.utils import clip_grad_norm_
from polyhal.optim import AdamW
from polyhal.training.options import TrainOptions
from polyhal.training.presets import for_device

VOCABULARY = 65
"""Characters of a plain English text."""


def _settings(device: Device, changes: dict[str, Any]) -> TrainOptions:
    """The training command's own settings for the device, with `changes`."""
    return replace(TrainOptions(**for_device(device)), **changes)


def _batches(options: TrainOptions) -> tuple[np.ndarray, np.ndarray]:
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (options.batch_size, options.context + 1))
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def ours(device: Device, options: TrainOptions) -> Callable[[], object]:
    """One training step: forward, backward, clipping, AdamW, and a wait."""
    polyhal.manual_seed(0)
    model = GPT(_config(options), device=device)
    optimizer = AdamW(model.parameters(), lr=1e-3)
    x, y = (polyhal.tensor(a, device=device) for a in _batches(options))

    def step() -> None:
        optimizer.zero_grad()
        model.loss(x, y).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        device.synchronize()

    return step


def torchs(options: TrainOptions, place: str) -> Callable[[], object]:
    """The same step in PyTorch, eager, on its device `place`."""
    import torch

    from benchmarks.torch_models import TorchGPT

    torch.manual_seed(0)
    model = TorchGPT(_config(options)).to(place)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = (torch.tensor(a, device=place) for a in _batches(options))

    def step() -> None:
        optimizer.zero_grad()
        model.loss(x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if place == "cuda":
            torch.cuda.synchronize()

    return step


def _config(options: TrainOptions) -> GPTConfig:
    return GPTConfig(
        vocab_size=VOCABULARY, block_size=options.context, n_layer=options.layers, n_head=options.heads, n_embd=options.width,
        dropout=options.dropout,
    )  # fmt: skip


def compare(names: list[str], repetitions: int, changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Measure each device beside PyTorch, alternating step by step."""
    rows = []
    for name in names:
        device = Device(name)
        options = _settings(device, changes)
        competitors: dict[str, Callable[[], object]] = {"polyhal": ours(device, options)}
        try:
            import torch
        except ImportError:
            print("PyTorch is not installed: nothing to compare with")
        else:
            competitors["torch"] = torchs(
                options, "cuda" if device.type.value == "gpu" and torch.cuda.is_available() else "cpu"
            )
        timings = alternate(competitors, repetitions)
        rows.append(_row(device, options, timings))
    return rows


def _row(device: Device, options: TrainOptions, timings: dict[str, Timing]) -> dict[str, Any]:
    tokens = options.batch_size * options.context
    row: dict[str, Any] = {
        "device": device.name,
        "name": device.info.name,
        "driver": device.info.driver,
        "tokens_per_step": tokens,
        "model": f"{options.layers} layers, width {options.width}, context {options.context}",
    }
    for who, t in timings.items():
        row[who] = {
            "tokens_per_s": tokens / t.median,
            "ms": t.median * 1e3,
            "low_ms": t.low * 1e3,
            "high_ms": t.high * 1e3,
        }
        print(f"{device.name:<12} {who:<8} {tokens / t.median:>10.0f} tokens/s   step {t.text(1e3, 'ms')}")
    if "torch" in timings:
        row["ratio"] = timings["torch"].median / timings["polyhal"].median
        print(f"{device.name:<12} {row['ratio']:.2f} times PyTorch")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default="", help="comma-separated device names; all devices by default")
    parser.add_argument("--repetitions", type=int, default=20)
    for option, what in (("batch", "sequences per step"), ("context", "tokens per sequence"), ("width", "model width")):
        parser.add_argument(f"--{option}", type=int, help=f"{what}; the training command's by default")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    os.environ["POLYHAL_BUILD_AHEAD"] = "0"  # helpers that compile would take cores from what is measured
    names = args.devices.split(",") if args.devices else [c.name for c in registry().candidates()]
    given = {"batch_size": args.batch, "context": args.context, "width": args.width}
    changes = {k: v for k, v in given.items() if v is not None}
    rows = compare(names, args.repetitions, changes)
    if args.json:
        found = {"benchmark": "train_gpt", **describe([Device(n) for n in names]), "rows": rows}
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
