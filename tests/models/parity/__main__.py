"""Compare models with PyTorch's in full size.

python -m tests.models.parity gradients [--devices numpy,opencl:intel] [--only TEXT,TEXT] [--json FILE]
    Largest relative errors of outputs and gradients against PyTorch in float64, with the same weights.
python -m tests.models.parity training [--devices ...] [--only ...] [--steps 100] [--json FILE]
    Losses after training steps with the same weights and data, eager and captured, and PyTorch's losses.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import polyhal
from tests.models.parity.cases import CASES
from tests.models.parity.comparison import agreement, load_weights_of, own_results, torch_results
from tests.models.parity.training import TASKS, own_losses, torch_losses


def gradients(devices: Sequence[str], only: Sequence[str]) -> list[dict[str, object]]:
    """Print a table of the cases whose names contain one of `only`, and return its rows."""
    rows: list[dict[str, object]] = []
    print(f"{'model':<36} {'device':<14} {'outputs':>8} {'gradients':>9}  largest error in")
    for name, case in CASES.items():
        if not _chosen(name, only):
            continue
        torch.manual_seed(0)
        theirs = case.make_reference()
        inputs = case.make_inputs(np.random.default_rng(0))
        expected = torch_results(theirs, inputs)  # the same for all devices, unless the model has branches
        for device in ("PyTorch float32", *devices):
            if device.startswith("PyTorch"):
                actual = torch_results(theirs, inputs, torch.float32)
            else:
                ours = case.make(polyhal.Device(device))
                load_weights_of(ours, theirs)
                actual = own_results(ours, inputs, polyhal.Device(device))
                del ours
            if actual.branches:
                expected = torch_results(theirs, inputs, branches=actual.branches)
            found = agreement(actual, expected)
            print(f"{name:<36} {device:<14} {found.outputs:8.1e} {found.gradients:9.1e}  {found.worst}", flush=True)
            rows.append({"model": name, "device": device, **found._asdict()})
            del actual
            gc.collect()
    return rows


def training(devices: Sequence[str], only: Sequence[str], steps: int) -> list[dict[str, object]]:
    """Print a table of the tasks whose names contain one of `only`, and return its rows."""
    rows: list[dict[str, object]] = []
    print(
        f"loss at step 1 and at step {steps}, its ratio to PyTorch's, and the largest relative difference at any step"
    )
    print(f"{'model':<6} {'run':<24} {'first':>9} {'last':>9} {'ratio':>9} {'largest':>8}")
    for name, task in TASKS.items():
        if not _chosen(name, only):
            continue
        first, expected = torch_losses(task, steps)
        runs = {"PyTorch": expected}
        for device in devices:
            for captured in (False, True):
                run = f"{device}, {'captured' if captured else 'eager'}"
                runs[run] = own_losses(task, first, steps, polyhal.Device(device), captured)
        for run, losses in runs.items():
            ratio = losses[-1] / expected[-1]
            largest = max(abs(a / b - 1) for a, b in zip(losses, expected, strict=True))
            print(f"{name:<6} {run:<24} {losses[0]:9.5f} {losses[-1]:9.5f} {ratio:9.6f} {largest:8.1e}", flush=True)
            row = {"model": name, "run": run, "steps": steps, "first": losses[0], "last": losses[-1]}
            rows.append({**row, "ratio": ratio, "largest": largest})
    return rows


def _chosen(name: str, only: Sequence[str]) -> bool:
    return not only or any(part.lower() in name.lower() for part in only)


def main(arguments: Sequence[str]) -> int:
    """Run a command. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("gradients", "training"))
    parser.add_argument("--devices", default="numpy,opencl", help="default: numpy,opencl")
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    devices, only = options.devices.split(","), [part for part in options.only.split(",") if part]
    rows = gradients(devices, only) if options.command == "gradients" else training(devices, only, options.steps)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
