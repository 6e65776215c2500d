"""Small language models in files, for tests: the trained stories260K as GGUF, and one with a vocabulary of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

STORIES = Path(__file__).parents[1] / "models" / "stories260K"
_MARKS = ("<unk>", "<s>", "</s>")
TEMPLATE = "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}</s>{% endfor %}<s>"


def write(
    path: Path, sizes: Mapping[str, int], tensors: Mapping[str, np.ndarray], more: Any = None, big_endian: bool = False
) -> Path:
    """Write a GGUF file of architecture llama."""
    order = gguf.GGUFEndian.BIG if big_endian else gguf.GGUFEndian.LITTLE
    writer = gguf.GGUFWriter(path, "llama", endianess=order)
    for name, value in sizes.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_layer_norm_rms_eps(1e-5)
    if more is None:
        writer.add_tokenizer_model("no_vocab")
    else:
        more(writer)
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stories(path: Path, with_vocabulary: bool = False) -> Path:
    """Write stories260K, whose rows are in the order of GGUF already, as float32.

    The vocabulary is made up, for programs that need one.
    """
    data = np.fromfile(STORIES / "model.bin", "<i4")
    width, hidden, layers, heads, kv_heads, vocabulary, context = map(int, data[:7])
    numbers, narrow = data[7:].view("<f4"), width // heads * kv_heads
    shapes = {
        "token_embd": (vocabulary, width),
        "attn_norm": (layers, width),
        "attn_q": (layers, width, width),
        "attn_k": (layers, narrow, width),
        "attn_v": (layers, narrow, width),
        "attn_output": (layers, width, width),
        "ffn_norm": (layers, width),
        "ffn_gate": (layers, hidden, width),
        "ffn_down": (layers, width, hidden),
        "ffn_up": (layers, hidden, width),
        "output_norm": (width,),
    }
    tensors, start = {}, 0
    for name, shape in shapes.items():
        values = numbers[start : start + int(np.prod(shape))].reshape(shape)
        start += values.size
        if name.startswith(("attn", "ffn")):
            tensors |= {f"blk.{i}.{name}.weight": values[i] for i in range(layers)}
        else:
            tensors[f"{name}.weight"] = values
    sizes = {"context_length": context, "embedding_length": width, "block_count": layers, "feed_forward_length": hidden}
    count = vocabulary - len(_MARKS) - 256

    def tokens(writer: gguf.GGUFWriter) -> None:
        _add_vocabulary(writer, [f"t{i}" for i in range(count)])

    more = tokens if with_vocabulary else None
    sizes |= {"vocab_size": vocabulary, "head_count": heads, "head_count_kv": kv_heads}
    return write(path, sizes, tensors, more)


def _add_vocabulary(writer: gguf.GGUFWriter, words: list[str]) -> None:
    """Add marks, bytes and words as a vocabulary."""
    tokens = [*_MARKS, *(f"<0x{i:02X}>" for i in range(256)), *words]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * len(words)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def with_bytes(path: Path, big_endian: bool = False, context: int = 64) -> Path:
    """Write a random model of one layer with a vocabulary of bytes and a chat template."""
    words = ["a", "b", "ab"]

    def vocabulary(writer: gguf.GGUFWriter) -> None:
        _add_vocabulary(writer, words)
        writer.add_chat_template(TEMPLATE)

    rng = np.random.default_rng(0)
    shapes = {
        "attn_norm": (8,),
        "attn_q": (8, 8),
        "attn_k": (4, 8),
        "attn_v": (4, 8),
        "attn_output": (8, 8),
        "ffn_norm": (8,),
        "ffn_gate": (16, 8),
        "ffn_up": (16, 8),
        "ffn_down": (8, 16),
    }
    named = {"token_embd.weight": (len(_MARKS) + 256 + len(words), 8), "output_norm.weight": (8,)}
    named |= {f"blk.0.{name}.weight": shape for name, shape in shapes.items()}
    tensors = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in named.items()}
    sizes = {"context_length": context, "embedding_length": 8, "block_count": 1, "feed_forward_length": 16}
    return write(path, {**sizes, "head_count": 2, "head_count_kv": 1}, tensors, vocabulary, big_endian)
