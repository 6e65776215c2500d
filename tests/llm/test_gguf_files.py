"""GGUF files: the package `gguf` writes them, and damage of any kind is an error that names it."""

from __future__ import annotations

import contextlib
import random
import struct
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gguf", reason="needs gguf: pip install 'polyhal[llm]'")
pytest.importorskip("tokenizers", reason="needs tokenizers: pip install 'polyhal[llm]'")

from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, PolyhalError
from polyhal.llm import open_model
from polyhal.llm.files import GgufFile

from .small_models import with_bytes


@pytest.mark.parametrize("big_endian", [False, True])
def test_files_of_both_byte_orders_are_read(tmp_path: Path, big_endian: bool) -> None:
    file = GgufFile(with_bytes(tmp_path / "model.gguf", big_endian))
    same = GgufFile(with_bytes(tmp_path / "other.gguf"))
    assert file.metadata["llama.embedding_length"] == 8
    assert file.metadata["llama.attention.layer_norm_rms_epsilon"] == np.float32(1e-5)
    assert file.metadata["tokenizer.ggml.tokens"][-3:] == ["a", "b", "ab"]
    assert file.metadata["tokenizer.ggml.token_type"][:4].tolist() == [2, 3, 3, 6]
    for name, tensor in same.tensors.items():
        assert np.array_equal(file.read(name), same.read(name))
        assert file.read(name).shape == tensor.shape
    assert open_model(file.path).load_tokenizer().encode("abé")[-3:] == [261, 198, 172]


@pytest.mark.parametrize(
    ("place", "form", "value", "problem"),
    [
        (0, "<I", 7, "is not a GGUF file"),
        (4, "<I", 9, "version 9"),
        (8, "<Q", 2**62, "4611686018427387904 tensors"),
        (16, "<Q", 2**40, "1099511627776 metadata values"),
        (24, "<Q", 2**63, "a key of 9223372036854775808 bytes"),
        (b"tokenizer.ggml.tokens", "<IIQ", (9, 8, 2**50), "1125899906842624 items"),
        (b"tokenizer.ggml.scores", "<IIQ", (9, 99, 2), "type 99"),
        (b"blk.0.attn_q.weight", "<IQQ", (2, 2**60, 2**60), "inside tensor 'blk.0.attn_q.weight'"),
        (b"blk.0.attn_q.weight", "<I", 77, "77 axes"),
        (b"blk.0.attn_q.weight", "<IQQI", (2, 8, 8, 200), "type 200"),
        (b"blk.0.attn_q.weight", "<IQQI", (2, 8, 8, 12), "multiples of 256"),
        (b"blk.0.attn_q.weight", "<IQQIQ", (2, 8, 8, 0, 0), "overlaps"),
        (b"blk.0.attn_q.weight", "<IQQIQ", (2, 8, 8, 0, 7), "a multiple of 32"),
        (b"llama.block_count", "<II", (4, 2**31 - 1), "block_count is 2147483647"),
        (b"llama.embedding_length", "<II", (4, 0), "hidden_size is 0"),
        (b"llama.attention.head_count", "<II", (4, 3), "multiple"),
        (b"general.architecture", "<IQ5s", (8, 5, b"other"), "architecture 'other'"),
    ],
)
def test_damage_is_named(tmp_path: Path, place: int | bytes, form: str, value: object, problem: str) -> None:
    data = bytearray(with_bytes(tmp_path / "model.gguf").read_bytes())
    start = data.index(place) + len(place) if isinstance(place, bytes) else place
    values = value if isinstance(value, tuple) else (value,)
    data[start : start + struct.calcsize(form)] = struct.pack(form, *values)
    (tmp_path / "bad.gguf").write_bytes(data)
    with pytest.raises((CorruptFileError, IncompatibleFileError), match=problem):
        open_model(tmp_path / "bad.gguf")


def test_random_damage_is_an_error_of_the_project(tmp_path: Path) -> None:
    good = with_bytes(tmp_path / "model.gguf").read_bytes()
    rng = random.Random(0)
    for _ in range(150):
        data = bytearray(good)
        place = rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(600)
        if rng.random() < 0.3:
            del data[place:]
        else:
            data[place : place + 8] = rng.choice((rng.randbytes(1), struct.pack("<Q", 2 ** rng.randrange(64)), b""))
        (tmp_path / "bad.gguf").write_bytes(data)
        with contextlib.suppress(PolyhalError):
            files = open_model(tmp_path / "bad.gguf")
            for weight in files.weights.values():
                weight.read()
            files.load_tokenizer()
