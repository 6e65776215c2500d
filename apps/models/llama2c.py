"""Weights of llama2.c: reads its `.bin` files (version 0, float32). Source: github.com/karpathy/llama2.c, export.py."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path

import numpy as np

from polyhal import Device
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.models.decoder import Decoder
from polyhal.models.decoder_config import DecoderConfig

_MAGIC = 0x616B3432
"""First number in files of later versions."""
_HEADER = 7


def load_llama2c(path: str | os.PathLike[str], device: Device | str | None = None) -> Decoder:
    """Load the model in a file of llama2.c, in evaluation mode.

    Raises IncompatibleFileError for another version of the format, and CorruptFileError if the size of the file contradicts
    its header.
    """
    data = np.fromfile(Path(path), "<i4")
    if len(data) < _HEADER or data[0] == _MAGIC:
        raise IncompatibleFileError(message("load_llama2c", f"{path} is not a file of llama2.c of version 0"))
    width, hidden, layers, heads, kv_heads, vocabulary, context = map(int, data[:_HEADER])
    if (
        min(width, hidden, layers, heads, kv_heads, context) < 1
        or not vocabulary
        or width % (2 * heads)
        or heads % kv_heads
    ):
        raise CorruptFileError(message("load_llama2c", f"{path}: sizes {data[:_HEADER].tolist()}"))
    config = DecoderConfig(
        vocab_size=abs(vocabulary),
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
        tie_word_embeddings=vocabulary > 0,
    )
    state = _state(data[_HEADER:].view("<f4"), config, path)  # before the model: the header may state wrong sizes
    model = Decoder(config, device)
    model.load_state_dict(state)
    return model.eval()


def _state(numbers: np.ndarray, c: DecoderConfig, path: object) -> dict[str, np.ndarray]:
    """Return the weights by name. The file stores them by kind, each kind for all layers."""
    n, width, hidden, narrow = c.num_hidden_layers, c.hidden_size, c.intermediate_size, c.kv_heads * c.head_width
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (c.vocab_size, width),
        "input_layernorm": (n, width),
        "self_attn.q_proj": (n, width, width),
        "self_attn.k_proj": (n, narrow, width),
        "self_attn.v_proj": (n, narrow, width),
        "self_attn.o_proj": (n, width, width),
        "post_attention_layernorm": (n, width),
        "mlp.gate_proj": (n, hidden, width),
        "mlp.down_proj": (n, width, hidden),
        "mlp.up_proj": (n, hidden, width),
        "model.norm.weight": (width,),
        "cosines and sines, which are not needed": (2, c.max_position_embeddings, c.head_width // 2),
    }
    if not c.tie_word_embeddings:
        shapes["lm_head.weight"] = (c.vocab_size, width)
    count = sum(map(prod, shapes.values()))
    if len(numbers) != count:
        problem = f"{path} has {len(numbers)} numbers"
        raise CorruptFileError(message("load_llama2c", problem, expected=f"{count} for the sizes in its header"))
    state, start = {}, 0
    for kind, shape in shapes.items():
        values = numbers[start : start + prod(shape)].reshape(shape)
        start += values.size
        if kind.endswith(".weight"):
            state[kind] = values
        elif " " not in kind:
            turned = kind.endswith(("q_proj", "k_proj"))
            for i in range(n):
                state[f"model.layers.{i}.{kind}.weight"] = _halves(values[i], c.head_width) if turned else values[i]
    state.setdefault("lm_head.weight", state["model.embed_tokens.weight"])
    return state


def _halves(weight: np.ndarray, head_width: int) -> np.ndarray:
    """Reorder the rows of a projection: llama2.c rotates adjacent features, this model features at a distance of half a
    head."""
    rows, columns = weight.shape
    pairs = weight.reshape(rows // head_width, head_width // 2, 2, columns)
    return pairs.transpose(0, 2, 1, 3).reshape(rows, columns)
