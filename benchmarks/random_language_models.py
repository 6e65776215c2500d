"""GGUF files of Llamas with random weights, which take as long as trained ones.

`python -m benchmarks.random_language_models FOLDER [SIZE:TYPE ...]` writes `SIZE-TYPE.gguf`; the sizes are 0.5b and 1.1b,
the types F16, BF16, Q8_0, Q4_0 and Q4_K_M, the mixture of Q4_K and Q6_K in llama.cpp's files.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyhal.hal.quantization import formats

_BASE = 256
"""Number of rows of a matrix that are quantised: more take long, and do not change the time of a product."""
_BLOCK = 256
"""Values of the largest block of a type."""


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a Llama, named as in its metadata."""

    embedding_length: int
    block_count: int
    feed_forward_length: int
    head_count: int
    head_count_kv: int
    vocabulary: int = 32000
    context_length: int = 2048


SIZES = {
    "0.5b": Size(1024, 24, 4864, 16, 4),
    "1.1b": Size(2048, 22, 5632, 32, 4),
    "tiny": Size(256, 2, 512, 4, 2, 512, 256),
}
"""487 and 1,100 million weights (the sizes of TinyLlama), and one for tests."""
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K_M")


def write_file(path: Path, size: Size, kind: str, seed: int = 0) -> None:
    """Write a GGUF file, with words for a vocabulary. Needs the gguf package."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama", use_temp_file=True)
    writer.add_embedding_length(size.embedding_length)
    writer.add_block_count(size.block_count)
    writer.add_feed_forward_length(size.feed_forward_length)
    writer.add_head_count(size.head_count)
    writer.add_head_count_kv(size.head_count_kv)
    writer.add_context_length(size.context_length)
    writer.add_vocab_size(size.vocabulary)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size.embedding_length // size.head_count)
    add_words(writer, size.vocabulary)
    rng = np.random.default_rng(seed)
    for name, shape in _shapes(size).items():
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
            continue
        stored = _type_of(name, kind, size)
        data = _rows(rng, shape, stored)
        raw = None if stored in ("F16", "F32") else gguf.GGMLQuantizationType[stored]
        writer.add_tensor(name, data, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_words(writer: Any, count: int, end: int = 2) -> None:
    """Add a vocabulary of the bytes and of made-up words. `end` ends answers."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    tokens += [f"\u2581w{i}" for i in range(len(tokens), count)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * count)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (count - 259)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(end)


def _shapes(s: Size) -> dict[str, tuple[int, ...]]:
    width, narrow = s.embedding_length, s.embedding_length // s.head_count * s.head_count_kv
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (s.vocabulary, width)}
    for i in range(s.block_count):
        layer = {
            "attn_norm": (width,),
            "attn_q": (width, width),
            "attn_k": (narrow, width),
            "attn_v": (narrow, width),
            "attn_output": (width, width),
            "ffn_norm": (width,),
            "ffn_gate": (s.feed_forward_length, width),
            "ffn_up": (s.feed_forward_length, width),
            "ffn_down": (width, s.feed_forward_length),
        }
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
    return {**shapes, "output_norm.weight": (width,), "output.weight": (s.vocabulary, width)}


def _type_of(name: str, kind: str, s: Size) -> str:
    """Return the storage type of a matrix; in Q4_K_M the output and half of the most sensitive matrices are Q6_K."""
    if kind != "Q4_K_M":
        return kind
    if name == "output.weight":
        return "Q6_K"
    if "attn_v" in name or "ffn_down" in name:
        layer, n = int(name.split(".")[1]), s.block_count
        return "Q6_K" if layer < n // 8 or layer >= 7 * n // 8 or (layer - n // 8) % 3 == 2 else "Q4_K"
    return "Q4_K"


def _rows(rng: np.random.Generator, shape: tuple[int, ...], stored: str) -> np.ndarray:
    """Return rows of blocks, each drawn from `_BASE` blocks of its column: equal rows would be tokens of equal logits."""
    rows, columns = shape
    values = rng.normal(0, columns**-0.5, (min(rows, _BASE), columns)).astype(np.float32)
    data: Any
    if stored == "F32":
        data = values
    elif stored == "F16":
        data = values.astype(np.float16)
    elif stored == "BF16":
        data = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(len(values), -1)
    else:
        data = formats.quantize(values, stored.lower())
    if rows <= len(data):
        return np.ascontiguousarray(data)
    blocks = data.reshape(len(data), max(1, columns // _BLOCK), -1)
    drawn = rng.integers(0, len(data), (rows, blocks.shape[1]))
    return np.ascontiguousarray(blocks[drawn, np.arange(blocks.shape[1])].reshape(rows, -1))


def main(folder: str, *names: str) -> None:
    """Write the named files, or all of 0.5b and 1.1b but F32."""
    chosen = names or [f"{size}:{kind}" for size in ("0.5b", "1.1b") for kind in TYPES if kind != "F32"]
    for name in chosen:
        size, _, kind = name.partition(":")
        if size not in SIZES or kind not in TYPES:
            raise SystemExit(f"{name!r} is unknown; expected SIZE:TYPE of {', '.join(SIZES)} and {', '.join(TYPES)}")
        path = Path(folder) / f"{size}-{kind}.gguf"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, SIZES[size], kind)
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
