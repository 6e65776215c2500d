"""Tokens per second of generating text with a GPT-2 of 124 million parameters, one sequence at a time, from a key-value cache.

python -m benchmarks.decode [--devices opencl:0] [--dtype float16] [--tokens 512] [--json FILE]

Weights are random: only the time counts. `steady` is the median of all tokens, `whole` all of a run from the prompt on, with
the recording of steps. PyTorch runs a model with the same cache, eagerly.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polyhal
from benchmarks.machine import describe, write
from benchmarks.measure import summarize
from polyhal import Device
from polyhal.hal import dtypes
from polyhal.hal.discovery.registry import registry
from polyhal.models import GPT, GPTConfig
from polyhal.models.generation import stream

CONFIG = GPTConfig(vocab_size=50257, block_size=1024, n_layer=12, n_head=12, n_embd=768)
_PROMPT = 16


def ours(device: Device, dtype: str, tokens: int) -> Iterator[object]:
    """The likeliest tokens after a prompt, one after the other."""
    polyhal.manual_seed(0)
    model = GPT(CONFIG, device=device).to(getattr(dtypes, dtype)).eval()
    return stream(model, list(range(_PROMPT)), tokens, temperature=0)


def torchs(place: str, dtype: str, tokens: int) -> Iterator[object]:
    """The same with PyTorch on its device `place`."""
    import torch

    from benchmarks.torch_models import TorchGPT

    torch.manual_seed(0)
    # Its cuDNN attention prepares anew for each length of the cache, which takes twenty times as long as the token.
    torch.backends.cuda.enable_cudnn_sdp(False)
    model = TorchGPT(CONFIG).to(place, getattr(torch, dtype)).eval()
    ids, past = torch.arange(_PROMPT, device=place)[None], None
    with torch.no_grad():
        for _ in range(tokens):
            logits, past = model.continued(ids, past)
            ids = logits[:, -1:].argmax(-1)
            yield int(ids)


def measure(tokens: Iterator[object]) -> dict[str, Any]:
    """Seconds of each token: of the median one with quartiles, and of the whole run per token."""
    taken = []
    begun = last = time.perf_counter()
    for _ in tokens:
        now = time.perf_counter()
        taken.append(now - last)
        last = now
    t = summarize(taken)
    return {"seconds": [t.median, t.low, t.high], "whole": (last - begun) / len(taken)}


def _show(name: str, who: str, found: dict[str, Any]) -> None:
    steady, whole = 1 / found["seconds"][0], 1 / found["whole"]
    print(f"{name:<12} {who:<8} {steady:.0f} tokens/s steady, {whole:.0f} from the prompt on")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="", help="comma-separated device names; all devices by default")
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16", "float32"))
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    names = args.devices.split(",") if args.devices else [c.name for c in registry().candidates()]
    devices = [Device(n) for n in names]
    rows = []
    for device in devices:
        measure(ours(device, args.dtype, args.tokens))  # builds what has to be built
        row: dict[str, Any] = {"device": device.name, "dtype": args.dtype, "tokens": args.tokens}
        row["polyhal"] = measure(ours(device, args.dtype, args.tokens))
        _show(device.name, "polyhal", row["polyhal"])
        try:
            import torch
        except ImportError:
            print("PyTorch is not installed: nothing to compare with")
        else:
            place = "cuda" if device.type.value == "gpu" and torch.cuda.is_available() else "cpu"
            measure(torchs(place, args.dtype, 32))
            row["torch"] = measure(torchs(place, args.dtype, args.tokens))
            _show(device.name, "torch", row["torch"])
        rows.append(row)
    write(args.json, {"benchmark": "decode", **describe(devices), "rows": rows})


if __name__ == "__main__":
    main()
