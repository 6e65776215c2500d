"""Prompts and generated tokens per second of language models in GGUF files, compared with llama.cpp.

The files have random weights (`python -m benchmarks.random_language_models FOLDER`), or are any others. llama.cpp runs in an
interpreter of its own, which has llama-cpp-python (`--llama-cpp PYTHON`; without it only Polyhal is measured), with as many
threads as the machine has cores. Both alternate. Prompts are read in steps that GPUs have recorded. Tokens are generated in a
long answer, whose step is recorded, and timed in windows of 8, because they arrive in pairs. A token reads all weights but the
embedding table; the share of the memory's speed compares them with the rate of summing 512 MiB. With `--batch N` a row of its
own has N answers at once, whose tokens share a reading. With `--torch` prompts of a compiled Llama in PyTorch, in bfloat16, are
timed too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polyhal
from benchmarks.arguments import make_parser, open_devices
from benchmarks.llama_cpp_client import LlamaCpp
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import summarize
from polyhal import Device
from polyhal.generation import WORTH_CAPTURING, GenerationEngine, GenerationRequest, PromptReader, SamplingParameters
from polyhal.llm import load
from polyhal.models.generation import stream

_PROMPT = 32
_WINDOW = 8
_UNTIL_RECORDED = 4
PEER = "llama.cpp"
TORCH = "PyTorch compiled"


class _Ours:
    """A model of Polyhal on one device."""

    def __init__(self, path: Path, device: Device, context: int) -> None:
        self.model = load(path, device=device, context=context).model.eval()
        self._vocabulary = self.model.config.vocab_size
        self._prompts = PromptReader(self.model, self.model.make_cache())

    def _ids(self, count: int) -> list[int]:
        return [(7 * i + 3) % self._vocabulary for i in range(count)]

    def record(self, tokens: int) -> None:
        """Read a prompt until its steps are recorded, if this device records them."""
        for _ in range(_UNTIL_RECORDED if self._prompts.captured else 0):
            self.prefill(tokens)

    def prefill(self, tokens: int) -> float:
        """Return the seconds of a prompt, which an empty cache takes."""
        ids = self._ids(tokens)
        with polyhal.no_grad():
            begin = time.perf_counter()
            self._prompts.read(0, ids, 0).numpy()
            return time.perf_counter() - begin

    def decode(self, tokens: int) -> list[float]:
        """Return the seconds of each greedy token after a prompt, without the first two, which record."""
        seconds = []
        running: Iterator[int] = stream(self.model, self._ids(_PROMPT), _most(tokens), temperature=0)
        for _ in range(3):
            next(running)
        for _ in range(tokens):
            begin = time.perf_counter()
            next(running)
            seconds.append(time.perf_counter() - begin)
        return seconds

    def together(self, count: int, tokens: int) -> list[float]:
        """Return the seconds of each greedy token of `count` answers at once, without those that record."""
        engine = GenerationEngine(self.model, count)
        ids = self._ids(_PROMPT)
        most = tokens + WORTH_CAPTURING
        answers = [
            engine.submit(
                GenerationRequest(ids[i % _PROMPT :] + ids[: i % _PROMPT], most, SamplingParameters(temperature=0))
            )
            for i in range(count)
        ]
        for answer in answers:
            next(answer)
        first, seconds = answers[0], []
        for counted in range(-_WINDOW, tokens):
            begin = time.perf_counter()
            next(first)
            if counted >= 0:
                seconds.append(time.perf_counter() - begin)
        return seconds


class _Torch:
    """Prompts of a compiled Llama in PyTorch, on the GPU if it has one."""

    def __init__(self, ours: _Ours, tokens: int) -> None:
        import torch

        from benchmarks.torch_llama import TorchLlama

        self._place = "cuda" if torch.cuda.is_available() else "cpu"
        model = TorchLlama(ours.model.config, torch.bfloat16, self._place).eval()
        self._run, self._no_grad = torch.compile(model), torch.no_grad
        self._ids = torch.arange(tokens, device=self._place)[None] % ours.model.config.vocab_size

    def prefill(self) -> float:
        """Return the seconds of the prompt."""
        with self._no_grad():
            begin = time.perf_counter()
            self._run(self._ids).float().cpu()
            return time.perf_counter() - begin


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("language_models", __doc__)
    parser.add_argument("--files", default="", metavar="FILE,FILE", help="GGUF files; without it nothing is measured")
    parser.add_argument("--llama-cpp", metavar="PYTHON", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="also measure N answers at once")
    parser.add_argument("--torch", action="store_true", help="also time prompts of a compiled Llama in PyTorch")
    args = parser.parse_args(arguments)
    if not args.files:
        print("no --files are given: nothing is measured")
        return 0
    devices = open_devices(args.devices)
    context = max(args.prompt, _PROMPT + _most(args.tokens))
    rates = {d.name: _read_rate(d) for d in devices}
    rows = []
    for path in map(Path, args.files.split(",")):
        with ExitStack() as stack:
            peer = (
                stack.enter_context(LlamaCpp(args.llama_cpp, path, os.cpu_count() or 1, context))
                if args.llama_cpp
                else None
            )
            ours = {d.name: _Ours(path, d, context) for d in devices}
            torch_peer = _Torch(next(iter(ours.values())), args.prompt) if args.torch else None
            rows.append(_row(path, ours, peer, torch_peer, args.prompt, args.tokens, args.rounds))
            _print(rows[-1])
            if args.batch:
                rows.append(_together(rows[-1], ours, args.batch, args.tokens))
                _print(rows[-1])
        # After each file: a run that is cut off keeps the others.
        write(args.json, {"benchmark": "language_models", **describe_machine(devices), "reads": rates, "rows": rows})
    return 0


def _most(tokens: int) -> int:
    """Return the number of tokens to generate so that `tokens` can be measured of an answer whose step is recorded."""
    return max(tokens + 3, WORTH_CAPTURING)


def _windows(seconds: list[float]) -> list[float]:
    """Return the mean seconds of a token in each window."""
    size = min(_WINDOW, len(seconds))
    return [sum(seconds[i : i + size]) / size for i in range(0, len(seconds) - size + 1, size)]


def _row(
    path: Path,
    ours: dict[str, _Ours],
    peer: LlamaCpp | None,
    torch_peer: _Torch | None,
    prompt: int,
    tokens: int,
    rounds: int,
) -> dict[str, Any]:
    """Measure one file; a round of everyone at a time, after a round that is not counted."""
    prefill: dict[str, list[float]] = {}
    decode: dict[str, list[float]] = {}
    for model in ours.values():
        model.record(prompt)
    for counted in range(-1, rounds):
        for name, model in ours.items():
            samples = model.prefill(prompt), model.decode(tokens)
            if counted >= 0:
                prefill.setdefault(name, []).append(samples[0])
                decode.setdefault(name, []).extend(_windows(samples[1]))
        if peer is not None:
            samples = peer.ask("prefill", prompt), peer.ask("decode", _PROMPT, tokens)
            if counted >= 0:
                prefill.setdefault(PEER, []).append(samples[0])
                decode.setdefault(PEER, []).extend(_windows(samples[1]))
        if torch_peer is not None and (sample := torch_peer.prefill()) and counted >= 0:
            prefill.setdefault(TORCH, []).append(sample)
    who = {
        name: {"prefill": _rates(prefill[name], prompt)} | ({"decode": _rates(decode[name])} if name in decode else {})
        for name in prefill
    }
    return {"file": path.name, "bytes": _bytes_per_token(path), "prompt": prompt, "tokens": tokens, "who": who}


def _together(row: dict[str, Any], ours: dict[str, _Ours], count: int, tokens: int) -> dict[str, Any]:
    """Return a row of `count` answers at once, of the file of `row`."""
    seconds = {name: _windows(model.together(count, tokens)) for name, model in ours.items()}
    who = {name: {"decode": _rates(taken, count)} for name, taken in seconds.items()}
    return {**row, "file": f"{row['file']}, {count} at once", "bytes": row["bytes"] / count, "who": who}


def _rates(seconds: list[float], tokens: int = 1) -> list[float]:
    """Return tokens per second: median and quartiles."""
    s = summarize(seconds)
    return [tokens / t for t in (s.median, s.high, s.low)]


def _read_rate(device: Device) -> float:
    """Return the bytes per second of summing 512 MiB, which no cache holds."""
    x = polyhal.ones((1 << 27,), device=device)
    seconds = []
    for _ in range(12):
        begin = time.perf_counter()
        x.sum().item()
        seconds.append(time.perf_counter() - begin)
    return 4.0 * (1 << 27) / min(seconds)


def _bytes_per_token(path: Path) -> int:
    import gguf

    tensors = gguf.GGUFReader(path).tensors
    names = {t.name for t in tensors}
    return sum(int(t.n_bytes) for t in tensors if t.name != "token_embd.weight" or "output.weight" not in names)


def _print(row: dict[str, Any]) -> None:
    parts = [f"{name} " + " and ".join(f"{rate[0]:.1f}" for rate in r.values()) for name, r in row["who"].items()]
    print(f"{row['file']}: prompt and generated tokens/s: {'; '.join(parts)}", flush=True)
