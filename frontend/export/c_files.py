"""Tensor files of a C export: state and constants, written by `polyhal.save`, and the tables by which C reads them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyhal.export.program import NamedNumber, ProgramTensor, StepProgram
from polyhal.hal.device import Device
from polyhal.hal.dtypes import as_dtype
from polyhal.serialize import save
from polyhal.tensor import Tensor

STATE_FORMAT = "polyhal step state"
_HASHES = "polyhal.sha256"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A tensor in a file."""

    name: str
    prefix: str
    """Text that is hashed before its bytes."""
    nbytes: int
    at: int
    hash_at: int
    """Position of its hash in the file."""


@dataclass(frozen=True, slots=True)
class TensorFileLayout:
    """A safetensors file and the positions of everything in it."""

    data: bytes
    header: bytes
    entries: tuple[FileEntry, ...]


def state_file(program: StepProgram) -> TensorFileLayout:
    """Return the file of a step's state: its tensors, named numbers and random streams, in this order."""
    host = Device("numpy")
    named = [n for n in program.numbers if isinstance(n, NamedNumber)]
    return _laid_out(
        {
            "format": STATE_FORMAT,
            "step": program.name,
            "state": {x.name: Tensor(stored_array(program, x), device=host) for x in program.state},
            "numbers": {
                n.name: np.array(n.value, np.float64 if isinstance(n.value, float) else np.int64) for n in named
            },
            "streams": [
                {"seed": np.array(s.seed, np.uint64), "offset": np.array(s.offset, np.uint64)} for s in program.streams
            ],
        }
    )


def constant_file(contents: Sequence[bytes]) -> TensorFileLayout | None:
    """Return the file of constants, None if there are none."""
    arrays = {str(i): np.frombuffer(content, np.uint8) for i, content in enumerate(contents)}
    return _laid_out({"constants": arrays}) if arrays else None


def stored_array(program: StepProgram, x: ProgramTensor) -> np.ndarray:
    """Return the present value of a tensor of the state; memory with gaps as one axis."""
    start, stop = x.span()
    kind = as_dtype(x.dtype).numpy
    flat = np.frombuffer(program.buffers[x.buffer].content[start:stop], kind).copy()
    return flat.reshape(x.shape) if is_dense(x) else flat


def is_dense(x: ProgramTensor) -> bool:
    """Return whether the elements of a tensor are in order and without gaps."""
    expected = 1
    for n, s in zip(reversed(x.shape), reversed(x.strides), strict=True):
        if n != 1 and s != expected:
            return 0 in x.shape
        expected *= n
    return True


def _laid_out(tree: Mapping[str, Any]) -> TensorFileLayout:
    file = io.BytesIO()
    save(tree, file)
    data = file.getvalue()
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    hashes: dict[str, str] = json.loads(header.pop("__metadata__")[_HASHES])
    after = 8 + length
    entries: list[FileEntry] = []
    at = data.index(_HASHES.encode())
    for name, described in header.items():
        start, stop = described["data_offsets"]
        at = data.index(hashes[name].encode(), at, after)  # hashes follow the order of the tensors
        prefix = f"{described['dtype']}[{','.join(map(str, described['shape']))}]"
        entries.append(FileEntry(name, prefix, stop - start, after + start, at))
        at += len(hashes[name])
    return TensorFileLayout(data, data[:after], tuple(entries))
