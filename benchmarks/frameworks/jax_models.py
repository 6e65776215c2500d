"""The steps of `benchmarks.step_models`, written by hand in JAX: forward passes from tensors by name, and whole steps.

State is donated. Needs JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.step_models import BETAS, DECAY, EPS, RATE, StepModel, llama_config

Tensors = Mapping[str, Any]
_DIMENSIONS = ("NCHW", "OIHW", "NCHW")
_HEADS, _LAYERS, _GROUPS = 4, 4, 8


def _linear(p: Tensors, name: str, x: Any) -> Any:
    out = x @ p[f"{name}.weight"].T
    return out + p[f"{name}.bias"] if f"{name}.bias" in p else out


def _convolve(p: Tensors, name: str, x: Any, stride: int = 1) -> Any:
    weight = p[f"{name}.weight"]
    padding = [((k - 1) // 2,) * 2 for k in weight.shape[2:]]
    out = lax.conv_general_dilated(x, weight, (stride, stride), padding, dimension_numbers=_DIMENSIONS)
    return out + p[f"{name}.bias"].reshape(1, -1, 1, 1) if f"{name}.bias" in p else out


def _batch_norm(p: Tensors, name: str, x: Any, buffers: dict[str, Any]) -> Any:
    mean = x.mean((0, 2, 3), keepdims=True)
    var = ((x - mean) ** 2).mean((0, 2, 3), keepdims=True)
    count = x.size // x.shape[1]
    for kind, new in (("mean", mean), ("var", var * (count / (count - 1)))):
        key = f"{name}.running_{kind}"
        buffers[key] = 0.9 * p[key] + 0.1 * new.reshape(-1)
    scale = lax.rsqrt(var + 1e-5) * p[f"{name}.weight"].reshape(1, -1, 1, 1)
    return (x - mean) * scale + p[f"{name}.bias"].reshape(1, -1, 1, 1)


def _cross_entropy(logits: Any, y: Any) -> Any:
    logits, y = logits.reshape(-1, logits.shape[-1]), y.reshape(-1)
    chosen = jnp.take_along_axis(logits, y[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean()


def _mlp(p: Tensors, x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
    for i in range(3):
        x = _linear(p, f"layers.{i}", x)
        x = jax.nn.relu(x) if i < 2 else x
    return _cross_entropy(x, y), {}


def _cnn(p: Tensors, x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
    buffers: dict[str, Any] = {}
    for conv, norm in ((0, 1), (3, 4)):
        x = jax.nn.relu(_batch_norm(p, f"0.{norm}", _convolve(p, f"0.{conv}", x), buffers))
    x = lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return _cross_entropy(_linear(p, "2", x.reshape(len(x), -1)), y), buffers


def _resnet(p: Tensors, x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
    buffers: dict[str, Any] = {}
    x = jax.nn.relu(_batch_norm(p, "bn1", _convolve(p, "conv1", x), buffers))
    for stage in range(1, 5):
        for block in range(2):
            n, stride = f"layer{stage}.{block}.", 2 if stage > 1 and block == 0 else 1
            out = jax.nn.relu(_batch_norm(p, f"{n}bn1", _convolve(p, f"{n}conv1", x, stride), buffers))
            out = _batch_norm(p, f"{n}bn2", _convolve(p, f"{n}conv2", out), buffers)
            if stride == 2:
                x = _batch_norm(p, f"{n}downsample.1", _convolve(p, f"{n}downsample.0", x, stride), buffers)
            x = jax.nn.relu(out + x)
    return _cross_entropy(_linear(p, "fc", x.mean((2, 3))), y), buffers


def _layer_norm(p: Tensors, name: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    scale = lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return centred * scale * p[f"{name}.weight"] + p[f"{name}.bias"]


def _gpt(p: Tensors, x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
    length = x.shape[1]

    def attend(qkv: Any) -> Any:
        split = jnp.split(qkv, 3, -1)
        q, k, v = (a.reshape(*a.shape[:2], _HEADS, -1).transpose(0, 2, 1, 3) for a in split)
        scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        masked = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        return (jax.nn.softmax(masked, -1) @ v).transpose(0, 2, 1, 3).reshape(qkv.shape[0], length, -1)

    h = p["transformer.wte.weight"][x] + p["transformer.wpe.weight"]
    for i in range(_LAYERS):
        n = f"transformer.h.{i}."
        qkv = _linear(p, f"{n}attn.c_attn", _layer_norm(p, f"{n}ln_1", h))
        h = h + _linear(p, f"{n}attn.c_proj", attend(qkv))
        wide = _linear(p, f"{n}mlp.c_fc", _layer_norm(p, f"{n}ln_2", h))
        h = h + _linear(p, f"{n}mlp.c_proj", jax.nn.gelu(wide, approximate=True))
    return _cross_entropy(_layer_norm(p, "transformer.ln_f", h) @ p["transformer.wte.weight"].T, y), {}


def _group_norm(p: Tensors, name: str, x: Any) -> Any:
    grouped = x.reshape(len(x), _GROUPS, -1)
    centred = grouped - grouped.mean(-1, keepdims=True)
    normed = (centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    return normed * p[f"{name}.weight"].reshape(1, -1, 1, 1) + p[f"{name}.bias"].reshape(1, -1, 1, 1)


def _unet(p: Tensors, x: Any, t: Any, noise: Any) -> tuple[Any, dict[str, Any]]:
    def block(n: str, x: Any) -> Any:
        shift = _linear(p, f"{n}.time_emb_proj", jax.nn.silu(time))
        out = _convolve(p, f"{n}.conv1", jax.nn.silu(_group_norm(p, f"{n}.norm1", x))) + shift[:, :, None, None]
        out = _convolve(p, f"{n}.conv2", jax.nn.silu(_group_norm(p, f"{n}.norm2", out)))
        return out + (_convolve(p, f"{n}.conv_shortcut", x) if f"{n}.conv_shortcut.weight" in p else x)

    def attend(n: str, x: Any) -> Any:
        pixels = _group_norm(p, f"{n}.group_norm", x).reshape(*x.shape[:2], -1).swapaxes(1, 2)
        q, k, v = (_linear(p, f"{n}.to_{part}", pixels) for part in "qkv")
        out = jax.nn.softmax(q @ k.swapaxes(1, 2) * q.shape[-1] ** -0.5, -1) @ v
        return x + _linear(p, f"{n}.to_out.0", out).swapaxes(1, 2).reshape(x.shape)

    half = p["conv_in.weight"].shape[0] // 2
    angles = t[:, None].astype(jnp.float32) * jnp.exp(jnp.arange(half) * (-np.log(10000.0) / (half - 1)))
    features = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)
    time = _linear(p, "time_embedding.linear_2", jax.nn.silu(_linear(p, "time_embedding.linear_1", features)))
    skips = [_convolve(p, "conv_in", x)]
    skips.append(block("down_blocks.0.resnets.0", skips[-1]))
    skips.append(_convolve(p, "down_blocks.0.downsamplers.0.conv", skips[-1], 2))
    skips.append(attend("down_blocks.1.attentions.0", block("down_blocks.1.resnets.0", skips[-1])))
    x = attend("mid_block.attentions.0", block("mid_block.resnets.0", skips[-1]))
    x = block("mid_block.resnets.1", x)
    for i in range(2):
        x = block(f"up_blocks.0.resnets.{i}", jnp.concatenate([x, skips.pop()], 1))
        x = attend(f"up_blocks.0.attentions.{i}", x)
    x = _convolve(p, "up_blocks.0.upsamplers.0.conv", jnp.repeat(jnp.repeat(x, 2, 2), 2, 3))
    for i in range(2):
        x = block(f"up_blocks.1.resnets.{i}", jnp.concatenate([x, skips.pop()], 1))
    x = _convolve(p, "conv_out", jax.nn.silu(_group_norm(p, "conv_norm_out", x)))
    return jnp.square(x - noise).mean(), {}


def _llama(p: Tensors, cache: Any, token: Any, position: Any) -> tuple[Any, Any]:
    """Return the logits of the next token (vocabulary,), and keys and values (layers, 2, heads, positions, width)."""
    c = llama_config()
    heads, shared, width = c.num_attention_heads, c.kv_heads, c.head_width
    place = position[0]

    def norm(name: str, x: Any) -> Any:
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + c.norm_eps) * p[f"{name}.weight"]

    angles = place * c.rope_theta ** (-jnp.arange(0, width, 2) / width)
    cos, sin = (jnp.tile(f(angles), 2) for f in (jnp.cos, jnp.sin))

    def rotated(x: Any) -> Any:
        first, second = jnp.split(x, 2, -1)
        return x * cos + jnp.concatenate([-second, first], -1) * sin

    h = p["model.embed_tokens.weight"][token[0, 0]]
    for i in range(c.num_hidden_layers):
        n = f"model.layers.{i}."
        x = norm(f"{n}input_layernorm", h)
        q = rotated(_linear(p, f"{n}self_attn.q_proj", x).reshape(heads, width)).reshape(shared, -1, width)
        k = rotated(_linear(p, f"{n}self_attn.k_proj", x).reshape(shared, width))
        v = _linear(p, f"{n}self_attn.v_proj", x).reshape(shared, width)
        cache = lax.dynamic_update_slice(cache, jnp.stack([k, v])[None, :, :, None], (i, 0, 0, place, 0))
        keys, values = cache[i]
        scores = q @ keys.swapaxes(1, 2) * width**-0.5
        weights = jax.nn.softmax(jnp.where(jnp.arange(keys.shape[1]) <= place, scores, -jnp.inf), -1)
        h = h + _linear(p, f"{n}self_attn.o_proj", (weights @ values).reshape(-1))
        x = norm(f"{n}post_attention_layernorm", h)
        wide = jax.nn.silu(_linear(p, f"{n}mlp.gate_proj", x)) * _linear(p, f"{n}mlp.up_proj", x)
        h = h + _linear(p, f"{n}mlp.down_proj", wide)
    return _linear(p, "lm_head", norm("model.norm", h)), cache


LOSSES: dict[str, Callable[..., tuple[Any, dict[str, Any]]]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "resnet": _resnet,
    "gpt": _gpt,
    "unet": _unet,
}
"""From parameters and buffers by name and a step's arguments to the loss and the new buffers."""


def jax_step(name: str, model: StepModel) -> Callable[[Sequence[np.ndarray]], np.ndarray]:
    """Return a step that takes the arguments and returns the loss or the logits to the host."""
    p = {k: jnp.array(v.numpy()) for k, v in model.module.named_parameters()}
    if model.loss is None:
        c = llama_config()
        cache = jnp.zeros((c.num_hidden_layers, 2, c.kv_heads, c.max_position_embeddings, c.head_width))
        decode = jax.jit(_llama, donate_argnums=1)
        held = [cache]

        def next_token(arguments: Sequence[np.ndarray]) -> np.ndarray:
            logits, held[0] = decode(p, held[0], *arguments)
            return np.asarray(logits)

        return next_token
    buffers = {k: jnp.array(v.numpy()) for k, v in model.module.named_buffers() if "num_batches" not in k}
    zeros = [jax.tree.map(jnp.zeros_like, p) for _ in range(2)]
    state = [(p, *zeros, jnp.zeros((), jnp.float32), buffers)]
    compiled = jax.jit(_training(LOSSES[name]), donate_argnums=0)

    def train(arguments: Sequence[np.ndarray]) -> np.ndarray:
        state[0], loss = compiled(state[0], *arguments)
        return np.asarray(loss)

    return train


def _training(loss_of: Callable[..., tuple[Any, dict[str, Any]]]) -> Callable[..., tuple[Any, Any]]:
    """Return a training step with AdamW from the state and the arguments to the new state and the loss."""
    first, second = BETAS

    def step(state: Any, *arguments: Any) -> tuple[Any, Any]:
        p, m, v, t, buffers = state

        def loss(p: Any) -> tuple[Any, dict[str, Any]]:
            return loss_of({**p, **buffers}, *arguments)

        (value, new), g = jax.value_and_grad(loss, has_aux=True)(p)
        t = t + 1
        m = jax.tree.map(lambda m, g: first * m + (1 - first) * g, m, g)
        v = jax.tree.map(lambda v, g: second * v + (1 - second) * g * g, v, g)
        c, d = 1 - first**t, 1 - second**t
        p = jax.tree.map(lambda p, m, v: p * (1 - RATE * DECAY) - RATE * (m / c) / (jnp.sqrt(v / d) + EPS), p, m, v)
        return (p, m, v, t, {**buffers, **new}), value

    return step
