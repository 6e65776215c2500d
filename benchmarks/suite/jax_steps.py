"""Training steps captured for XLA by the plug-in, compared with the same steps written by hand in JAX.

Needs JAX, and the plug-in on the path: `PYTHONPATH=examples/plugins/xla/src python -m benchmarks jax_steps`. Both train from
the same parameters with AdamW in float32; JAX's state is donated. Losses of the first steps are compared before anything is
timed. On a machine with other work, use `--processor-time` and `XLA_FLAGS=--xla_cpu_multi_thread_eigen=false`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from benchmarks.arguments import make_parser
from benchmarks.result_files import describe_machine, write
from benchmarks.timing import alternate
from polyhal import Device, jit, manual_seed, nn, optim, tensor
from polyhal.models import CNN, GPT, MLP, GPTConfig
from polyhal.nn import functional as F

_RATE, _BETAS, _EPS, _DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01
_COMPARED = 5
"""Steps whose losses are compared."""
_TOLERANCE = 1e-3
"""Relative difference of losses: float32 sums in another order, amplified by Adam's division in the first steps."""
_SAMPLE = 0.02
"""Seconds per sample, at least."""
_VOCABULARY, _CONTEXT, _HEADS, _LAYERS = 65, 64, 4, 4


class StepModel(NamedTuple):
    """A model of Polyhal, its batch, and its forward pass in JAX from parameters and buffers by name."""

    module: nn.Module
    x: np.ndarray
    y: np.ndarray
    forward: Callable[[Any, Any], tuple[Any, Any]]
    """Takes the tensors by name and the inputs; returns logits and the new buffers by name."""


def _mlp() -> StepModel:
    import jax

    rng = np.random.default_rng(0)

    def forward(p: Any, x: Any) -> tuple[Any, Any]:
        for i in range(3):
            x = x @ p[f"layers.{i}.weight"].T + p[f"layers.{i}.bias"]
            x = jax.nn.relu(x) if i < 2 else x
        return x, {}

    x = rng.standard_normal((64, 64)).astype(np.float32)
    return StepModel(MLP((64, 256, 256, 10)), x, rng.integers(0, 10, 64), forward)


def _cnn() -> StepModel:
    import jax
    from jax import lax

    rng = np.random.default_rng(0)
    module = nn.Sequential(CNN().features, nn.Flatten(), nn.Linear(32 * 4 * 4, 10))

    def forward(p: Any, x: Any) -> tuple[Any, Any]:
        buffers = {}
        for conv, norm in ((0, 1), (3, 4)):
            dims = ("NCHW", "OIHW", "NCHW")
            x = lax.conv_general_dilated(x, p[f"0.{conv}.weight"], (1, 1), [(1, 1)] * 2, dimension_numbers=dims)
            mean = x.mean((0, 2, 3), keepdims=True)
            var = ((x - mean) ** 2).mean((0, 2, 3), keepdims=True)
            n, count = f"0.{norm}.", x.size // x.shape[1]
            buffers[n + "running_mean"] = 0.9 * p[n + "running_mean"] + 0.1 * mean.reshape(-1)
            buffers[n + "running_var"] = 0.9 * p[n + "running_var"] + 0.1 * var.reshape(-1) * (count / (count - 1))
            scale = lax.rsqrt(var + 1e-5) * p[n + "weight"].reshape(1, -1, 1, 1)
            x = jax.nn.relu((x - mean) * scale + p[n + "bias"].reshape(1, -1, 1, 1))
        x = lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return x.reshape(len(x), -1) @ p["2.weight"].T + p["2.bias"], buffers

    x = rng.standard_normal((32, 1, 8, 8)).astype(np.float32)
    return StepModel(module, x, rng.integers(0, 10, 32), forward)


def _gpt() -> StepModel:
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)

    def norm(x: Any, weight: Any, bias: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * weight + bias

    def attend(qkv: Any) -> Any:
        split = jnp.split(qkv, 3, -1)
        q, k, v = (a.reshape(*a.shape[:2], _HEADS, -1).transpose(0, 2, 1, 3) for a in split)
        scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        masked = jnp.where(jnp.tril(jnp.ones((_CONTEXT, _CONTEXT), bool)), scores, -jnp.inf)
        return (jax.nn.softmax(masked, -1) @ v).transpose(0, 2, 1, 3).reshape(qkv.shape[0], _CONTEXT, -1)

    def forward(p: Any, x: Any) -> tuple[Any, Any]:
        def linear(x: Any, name: str) -> Any:
            return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

        h = p["transformer.wte.weight"][x] + p["transformer.wpe.weight"]
        for i in range(_LAYERS):
            n = f"transformer.h.{i}."
            normed = norm(h, p[n + "ln_1.weight"], p[n + "ln_1.bias"])
            h = h + linear(attend(linear(normed, n + "attn.c_attn")), n + "attn.c_proj")
            wide = linear(norm(h, p[n + "ln_2.weight"], p[n + "ln_2.bias"]), n + "mlp.c_fc")
            h = h + linear(jax.nn.gelu(wide, approximate=True), n + "mlp.c_proj")
        h = norm(h, p["transformer.ln_f.weight"], p["transformer.ln_f.bias"])
        return h @ p["transformer.wte.weight"].T, {}

    config = GPTConfig(vocab_size=_VOCABULARY, block_size=_CONTEXT, n_layer=_LAYERS, n_head=_HEADS, n_embd=128)
    x, y = (rng.integers(0, _VOCABULARY, (8, _CONTEXT)) for _ in range(2))
    return StepModel(GPT(config), x, y, forward)


MODELS = {"mlp": _mlp, "cnn": _cnn, "gpt": _gpt}


def jax_step(model: StepModel) -> Callable[[], float]:
    """Return a step in JAX that returns the loss to the host."""
    import jax
    import jax.numpy as jnp

    first, second = _BETAS

    def loss_of(p: Any, buffers: Any, x: Any, y: Any) -> tuple[Any, Any]:
        logits, new = model.forward({**p, **buffers}, x)
        logits, y = logits.reshape(-1, logits.shape[-1]), y.reshape(-1)
        chosen = jnp.take_along_axis(logits, y[:, None], 1)[:, 0]
        return (jax.nn.logsumexp(logits, -1) - chosen).mean(), new

    def step(state: Any, x: Any, y: Any) -> tuple[Any, Any]:
        p, m, v, t, buffers = state
        (loss, new), g = jax.value_and_grad(loss_of, has_aux=True)(p, buffers, x, y)
        t = t + 1
        m = jax.tree.map(lambda m, g: first * m + (1 - first) * g, m, g)
        v = jax.tree.map(lambda v, g: second * v + (1 - second) * g * g, v, g)
        c, d = 1 - first**t, 1 - second**t
        p = jax.tree.map(lambda p, m, v: p * (1 - _RATE * _DECAY) - _RATE * (m / c) / (jnp.sqrt(v / d) + _EPS), p, m, v)
        return (p, m, v, t, {**buffers, **new}), loss

    p = {k: jnp.array(v.numpy()) for k, v in model.module.named_parameters()}
    buffers = {k: jnp.array(v.numpy()) for k, v in model.module.named_buffers() if "num_batches" not in k}
    zeros = [jax.tree.map(jnp.zeros_like, p) for _ in range(2)]
    state = [(p, *zeros, jnp.zeros((), jnp.float32), buffers)]
    compiled, x, y = jax.jit(step, donate_argnums=0), jnp.asarray(model.x), jnp.asarray(model.y)

    def run() -> float:
        state[0], loss = compiled(state[0], x, y)
        return float(loss)

    return run


def polyhal_step(model: StepModel, device: Device) -> tuple[Callable[[], float], Any]:
    """Return a captured step on a device that returns the loss to the host, and the captured function."""
    module = model.module.to(device)
    optimizer = optim.AdamW(module.parameters(), lr=_RATE, betas=_BETAS, eps=_EPS, weight_decay=_DECAY)
    x, y = tensor(model.x, device=device), tensor(model.y, device=device)

    @jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        logits = module(x)
        loss = F.cross_entropy(logits.reshape((-1, logits.shape[-1])), y.reshape((-1,)))
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(x, y).item(), step


def _compare(name: str, found: Sequence[float], expected: Sequence[float]) -> None:
    if not np.allclose(found, expected, rtol=_TOLERANCE):
        raise SystemExit(f"{name}: the losses are {found}, JAX's {expected}")


def main(arguments: Sequence[str]) -> int:
    parser = make_parser("jax_steps", __doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repetitions", type=int, default=30)
    parser.add_argument("--processor-time", action="store_true", help="measure the processor time of all threads")
    parser.add_argument("--limit", type=float, default=1.5, help="largest median time, relative to JAX")
    args = parser.parse_args(arguments)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from polyhal_xla.backend import XlaBackend

    device = Device.opened("xla", XlaBackend("0"))
    rows, slow = [], []
    for name in args.models:
        manual_seed(0)
        model = MODELS[name]()
        by_hand = jax_step(model)
        captured, function = polyhal_step(model, device)
        expected = [by_hand() for _ in range(_COMPARED)]
        found = [captured() for _ in range(_COMPARED)]
        _compare(name, found, expected)
        clock = time.process_time if args.processor_time else time.perf_counter
        times = alternate({"jax": by_hand, "polyhal": captured}, args.repetitions, min_seconds=_SAMPLE, clock=clock)
        ratio = times["polyhal"].median / times["jax"].median
        programs = function.explain().count("= program(")
        rows.append(
            {"model": name, "programs": programs, "losses": found, "jax_losses": expected, "ratio": ratio}
            | {f"{way}_seconds": asdict(t) for way, t in times.items()}
        )
        print(
            f"{name}: JAX {times['jax'].text(1e3, 'ms')}, captured {times['polyhal'].text(1e3, 'ms')}, ratio {ratio:.2f}"
        )
        slow += [name] if ratio > args.limit else []
    write(
        args.json,
        {
            "benchmark": "jax_steps",
            "clock": "processor" if args.processor_time else "wall",
            **describe_machine([device]),
            "rows": rows,
        },
    )
    return 1 if slow else 0
