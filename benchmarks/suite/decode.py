"""Tokens per second of generating text with a GPT-2 of 124 million parameters, from a KV cache.

The weights are random; only the time counts. `steady` is the median over all tokens, `whole` the average of a run
including the prompt, and including the capture of steps. PyTorch runs a model with the same cache, eagerly.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import polyhal
from benchmarks.arguments import make_parser, open_devices
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import summarize
from polyhal import Device
from polyhal.hal import dtypes
from polyhal.models import GPT, GPTConfig
from polyhal.models.generation import stream

CONFIG = GPTConfig(vocab_size=50257, block_size=1024, n_layer=12, n_head=12, n_embd=768)
_PROMPT_TOKENS = 16


def polyhal_tokens(device: Device, dtype: str, tokens: int) -> Iterator[object]:
    """Generate tokens greedily with Polyhal."""
    polyhal.manual_seed(0)
    model = GPT(CONFIG, device=device).to(getattr(dtypes, dtype)).eval()
    return stream(model, list(range(_PROMPT_TOKENS)), tokens, temperature=0)


def torch_tokens(place: str, dtype: str, tokens: int) -> Iterator[object]:
    """Generate tokens greedily with PyTorch on its device `place`."""
    import torch

    from benchmarks.torch_models import TorchGPT

    torch.manual_seed(0)
    # cuDNN attention builds a new plan for each length of the cache, which takes twenty times as long as the token.
    torch.backends.cuda.enable_cudnn_sdp(False)
    model = TorchGPT(CONFIG).to(place, getattr(torch, dtype)).eval()
    ids, past = torch.arange(_PROMPT_TOKENS, device=place)[None], None
    with torch.no_grad():
        for _ in range(tokens):
            logits, past = model.continued(ids, past)
            ids = logits[:, -1:].argmax(-1)
            yield int(ids)


def measure(tokens: Iterator[object]) -> dict[str, Any]:
    """Return seconds per token: median and quartiles, and the average of the whole run."""
    samples = []
    begin = last = time.perf_counter()
    for _ in tokens:
        now = time.perf_counter()
        samples.append(now - last)
        last = now
    t = summarize(samples)
    return {"seconds": [t.median, t.low, t.high], "whole": (last - begin) / len(samples)}


def _print(name: str, framework: str, result: dict[str, Any]) -> None:
    steady, whole = 1 / result["seconds"][0], 1 / result["whole"]
    print(f"{name:<12} {framework:<8} {steady:.0f} tokens/s steady, {whole:.0f} from the prompt on", flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("decode", __doc__)
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16", "float32"))
    parser.add_argument("--tokens", type=int, default=512)
    args = parser.parse_args(arguments)
    devices = open_devices(args.devices)
    rows = []
    for device in devices:
        measure(polyhal_tokens(device, args.dtype, args.tokens))  # builds the kernels
        row: dict[str, Any] = {"device": device.name, "dtype": args.dtype, "tokens": args.tokens}
        row["polyhal"] = measure(polyhal_tokens(device, args.dtype, args.tokens))
        _print(device.name, "polyhal", row["polyhal"])
        try:
            import torch
        except ImportError:
            print("PyTorch is not installed and not measured")
        else:
            place = "cuda" if device.type.value == "gpu" and torch.cuda.is_available() else "cpu"
            measure(torch_tokens(place, args.dtype, 32))
            row["torch"] = measure(torch_tokens(place, args.dtype, args.tokens))
            _print(device.name, "torch", row["torch"])
        rows.append(row)
    write(args.json, {"benchmark": "decode", **describe_machine(devices), "rows": rows})
    return 0
