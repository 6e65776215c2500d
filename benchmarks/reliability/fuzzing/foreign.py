"""Files of other programs: PyTorch, NumPy, safetensors, shards, llama2.c."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import safetensors.numpy

import polyhal as ph
from benchmarks.reliability.fuzzing import pickling
from benchmarks.reliability.fuzzing.case import FileFormat, HostileInput
from benchmarks.reliability.fuzzing.mutation import damaged_bytes, damaged_json, damaged_tree

_NAME = "x"


def formats() -> list[FileFormat]:
    """Return all formats of this file."""
    fixed = Random(0)
    arrays = _arrays()
    return [
        _format("torch zip", [pickling.archive(fixed, hostile=False)], lambda r: pickling.archive(r, hostile=True)),
        _format("torch legacy", [pickling.legacy_file(fixed, hostile=False)], _hostile_legacy),
        _format("pickle", [pickle.dumps({"a": np.arange(3), "b": [1, (2,)]}, 2)], pickling.program),
        _format("npz", arrays, _hostile_npy),
        _format("safetensors", [_safetensors()], _hostile_safetensors),
        FileFormat("shards", _hostile_shards, _load("model.safetensors.index.json"), _shards()),
        _format("llama2.c", [_llama2c((4, 8, 1, 2, 1, 5, 3))], _hostile_llama2c, _read_llama2c),
    ]


def _load(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        loaded = ph.load(folder / name, "numpy")
        return loaded.state_dict() if isinstance(loaded, ph.nn.Module) else loaded

    return read


def _format(
    name: str,
    files: Sequence[bytes],
    structured: Callable[[Random], bytes],
    read: Callable[[Path], Any] | None = None,
) -> FileFormat:
    """Return a format of one file: damaged bytes of valid and of structured files, and structured files without damage."""

    def make(random: Random) -> HostileInput:
        kind = random.randrange(3)
        data = random.choice(files) if kind == 0 else structured(random)
        return HostileInput({_NAME: data if kind == 1 else damaged_bytes(random, data, files)})

    return FileFormat(name, make, read or _load(_NAME), HostileInput({_NAME: files[0]}))


def _arrays() -> list[bytes]:
    plain, packed, single = io.BytesIO(), io.BytesIO(), io.BytesIO()
    content: Mapping[str, Any] = {
        "a": np.arange(6.0).reshape(2, 3),
        "b/c": np.ones(3, np.int8),
        "d": np.array(["x", "yz"]),
    }
    np.savez(plain, **content)
    np.savez_compressed(packed, **content, e=np.array([{"a": 1}, None], object))
    np.save(single, np.arange(4, dtype=">i4").reshape(2, 2, order="F"))
    return [plain.getvalue(), packed.getvalue(), single.getvalue()]


def _hostile_npy(random: Random) -> bytes:
    """Return one array with an invented header."""
    kind = random.choice(
        ("<f4", ">i8", "|b1", "<U3", "|S0", "<U0", "|O", "<c8", "<M8[s]", "<f2", "|V8", "<U99999999", "<f16")
    )
    numbers = (0, 1, 2, 3, 10**9, 2**31, 2**62, -1)
    shape = tuple(random.choice(numbers) for _ in range(random.choice((0, 1, 1, 2, 2, 3, 40))))
    header = f"{{'descr': '{kind}', 'fortran_order': {random.choice((True, False))}, 'shape': {shape}, }}"
    data = header.encode().ljust(118) + b"\n"
    body = pickling.program(random) if kind == "|O" else bytes(random.choice((0, 4, 24, 48)))
    version = random.choice((b"\x01\x00", b"\x01\x00", b"\x03\x00", b"\xff\x00"))
    return b"\x93NUMPY" + version + len(data).to_bytes(2, "little") + data + body


def _safetensors() -> bytes:
    return bytes(safetensors.numpy.save({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.int8)}))


def _hostile_safetensors(random: Random) -> bytes:
    kinds = ("F32", "F64", "BOOL", "F8_E4M3", "F8_E5M2", "F4", "BF16", "I64", "U16", "C64", "x", "F6_E2M3")
    entries = {
        "a": {"dtype": random.choice(kinds), "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": random.choice(kinds), "shape": [random.choice((3, 12, 6, 24, 1))], "data_offsets": [24, 36]},
        "__metadata__": {"format": "pt", **({"polyhal.schema": "1"} if random.random() < 0.2 else {})},
    }
    if random.random() < 0.2:  # shapes that the library accepts but that no array has
        shape = random.choice(([2**62, 0, 2**62], [1] * 200, [0] * 200, [2**31, 0, 2**31, 2**31], [1] * 65))
        entries["b"] |= {"dtype": "I8", "shape": shape, "data_offsets": [24, 24 if 0 in shape else 25]}
    tree = damaged_tree(random, entries) if random.random() < 0.7 else entries
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(random.choice((36, 36, 24, 25, 28)))


_SHARDS = ("model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json")


def _shards() -> HostileInput:
    index = {"metadata": {"total_size": 36}, "weight_map": {"a": _SHARDS[0], "b": _SHARDS[1]}}
    first = bytes(safetensors.numpy.save({"a": np.ones(6, np.float32)}))
    second = bytes(safetensors.numpy.save({"b": np.ones(3, np.float32)}))
    return HostileInput({_SHARDS[0]: first, _SHARDS[1]: second, _SHARDS[2]: json.dumps(index).encode()})


def _hostile_shards(random: Random) -> HostileInput:
    files = dict(_shards().files)
    index = json.loads(files[_SHARDS[2]])
    if random.random() < 0.3:
        odd = (
            _SHARDS[2],
            "..",
            ".",
            "",
            "../x",
            "/etc/passwd",
            "a\x00b",
            "\ud800",
            "x" * 300,
            "folder/../model-1.safetensors",
        )
        index["weight_map"][random.choice(("a", "b", "c"))] = random.choice(odd)
        return HostileInput({**files, _SHARDS[2]: json.dumps(index).encode()})
    files[_SHARDS[2]] = damaged_json(random, index)
    if random.random() < 0.3:
        files[_SHARDS[0]] = damaged_bytes(random, files[_SHARDS[0]])
    return HostileInput(files)


def _llama2c(sizes: Sequence[int]) -> bytes:
    width, hidden, layers, heads, kv_heads, vocabulary, context = sizes
    narrow = kv_heads * (width // heads)
    per_layer = 2 * width + 2 * width * width + 2 * narrow * width + 3 * hidden * width
    count = abs(vocabulary) * width + layers * per_layer + width + context * (width // heads // 2) * 2
    count += abs(vocabulary) * width if vocabulary < 0 else 0
    return np.array(sizes, "<i4").tobytes() + np.linspace(0, 1, count, dtype="<f4").tobytes()


def _read_llama2c(folder: Path) -> Any:
    return ph.models.load_llama2c(folder / _NAME, "numpy").state_dict()


def _hostile_legacy(random: Random) -> bytes:
    return pickling.legacy_file(random, hostile=True)


def _hostile_llama2c(random: Random) -> bytes:
    data = bytearray(_llama2c((4, 8, 1, 2, 1, random.choice((5, -5)), 3)))
    if random.random() < 0.9:
        for _ in range(random.choice((1, 2))):
            number = random.choice((0, 1, -1, 2, 3, 2**16, 2**24, 2**30, 2**31 - 1, -(2**31)))
            at = 4 * random.randrange(7)
            data[at : at + 4] = number.to_bytes(4, "little", signed=True)
    return bytes(data)
