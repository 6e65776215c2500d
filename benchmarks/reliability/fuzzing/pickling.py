"""Pickles written instruction by instruction: PyTorch's files without PyTorch, and programs that no pickler would write."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence
from random import Random

import numpy as np

_MAGIC = 0x1950A86A20F9469CFC6C
_KINDS = (
    "FloatStorage",
    "DoubleStorage",
    "LongStorage",
    "ByteStorage",
    "BoolStorage",
    "HalfStorage",
    "BFloat16Storage",
)
_NAMES = (
    "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3", "torch._utils _rebuild_parameter", "torch Size",
    "collections OrderedDict", "collections Counter", "collections defaultdict", "builtins set", "builtins frozenset",
    "builtins list", "builtins tuple", "builtins dict", "builtins bytearray", "builtins complex", "_codecs encode",
    "numpy dtype", "numpy.core.multiarray scalar", "numpy.core.multiarray _reconstruct", "numpy ndarray", "torch device",
    "torch FloatStorage", "torch._tensor _rebuild_from_type_v2", "torch.nn.parameter Parameter", "torch float32",
    "posix system", "builtins eval", "builtins getattr", "subprocess Popen", "os remove", "numpy.core.numeric _frombuffer",
)  # fmt: skip


def name(text: str) -> bytes:
    """GLOBAL: "module name"."""
    module, _, attribute = text.partition(" ")
    return f"c{module}\n{attribute}\n".encode()


def text(value: str) -> bytes:
    """BINUNICODE."""
    data = value.encode(errors="surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def whole(value: int) -> bytes:
    """LONG1, which takes any integer."""
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def group(*parts: bytes) -> bytes:
    """A tuple."""
    return b"(" + b"".join(parts) + b"t"


def mapping(*entries: tuple[bytes, bytes]) -> bytes:
    """A dictionary."""
    return b"}(" + b"".join(k + v for k, v in entries) + b"u"


def tensor(random: Random, key: str, count: int, *, legacy: bool, hostile: bool) -> bytes:
    """Return a view of a storage, which is often not within it if `hostile`."""
    kind = random.choice(_KINDS) if hostile else "FloatStorage"
    parts = [text("storage"), name(f"torch {kind}"), text(key), text("cpu"), whole(count), *([b"N"] if legacy else [])]
    reference = group(*parts) + b"Q"
    shape: Sequence[int] = (2, count // 2)
    strides: Sequence[int] = (count // 2, 1)
    offset = 0
    if hostile:
        numbers = (0, 0, 1, 1, 2, 3, count, count + 1, 2**20, 2**31, 2**40, 2**62, -1)
        rank = random.randrange(5)
        shape = [random.choice(numbers) for _ in range(rank)]
        strides = [random.choice(numbers) for _ in range(rank + (random.random() < 0.1))]
        offset = random.choice((0, 0, 1, count, 2**40, -1))
    sizes = (group(*map(whole, shape)), group(*map(whole, strides)))
    return name("torch._utils _rebuild_tensor_v2") + group(reference, whole(offset), *sizes, b"\x89", b"}") + b"R"


def program(random: Random) -> bytes:
    """Return random instructions that are likely to run long: values, containers, names, calls, references."""
    out = [b"\x80\x02"]
    memo = 0
    for _ in range(random.choice((3, 10, 30, 100))):
        kind = random.randrange(22)
        if kind == 0:
            out.append(name(random.choice(_NAMES)))
        elif kind == 1:
            out.append(random.choice((b"R", b"b", b"\x81", b"Q")))
        elif kind == 2:
            out.append(b"q" + bytes([memo % 256]))
            memo += 1
        elif kind == 3 and memo:
            out.append(b"h" + bytes([random.randrange(min(memo, 256))]))
        elif kind == 4:
            out.append(b"q\x00" + b"h\x00\x86q\x00" * random.choice((5, 30, 60)))  # a tuple of itself twice, and again
        elif kind == 5:
            out.append(b"]" * 50 + b"a" * 49)
        elif kind == 6:
            out.append(b"\x85" * random.choice((2, 5000, 200_000)))  # tuples in tuples
        else:
            simple = (
                b"]",
                b"}",
                b")",
                b"(",
                b"t",
                b"l",
                b"d",
                b"e",
                b"u",
                b"s",
                b"a",
                b"N",
                b"\x88",
                b"K\x07",
                b"\x85",
                b"\x86",
                b"\x87",
                b"2",
                b"0",
                b"1",
                text("x"),
                text("storage"),
                whole(2**62),
                whole(3),
                b"\x8f",
                b"\x90",
                b"\x91",
                b"G?\xf0\x00\x00\x00\x00\x00\x00",
                b"U\x01x",
                b"C\x02ab",
            )
            out.append(random.choice(simple))
    return b"".join(out) + b"."


def state(random: Random, *, legacy: bool, hostile: bool) -> bytes:
    """Return the pickle of a state dict with two tensors, or of a hostile object."""
    if hostile and random.random() < 0.3:
        return program(random)
    view = [tensor(random, key, 6, legacy=legacy, hostile=hostile) for key in ("0", "1")]
    entries = [(text("weight"), view[0]), (text("layer.bias"), view[1]), (text("step"), whole(3))]
    if hostile and random.random() < 0.3:
        entries.append((program(random)[2:-1], program(random)[2:-1]))
    return b"\x80\x02" + mapping(*entries) + b"."


_STORAGES = {key: np.arange(6, dtype=np.float32).tobytes() for key in ("0", "1")}


def archive(random: Random, *, hostile: bool) -> bytes:
    """Return a file of `torch.save`."""
    file = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if hostile and random.random() < 0.3 else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method) as new:
        new.writestr("a/data.pkl", state(random, legacy=False, hostile=hostile))
        new.writestr("a/byteorder", random.choice((b"little", b"big", b"x" * 99)) if hostile else b"little")
        for key, data in _STORAGES.items():
            new.writestr(f"a/data/{key}", data * (random.choice((1, 0, 1000)) if hostile else 1))
        if hostile and random.random() < 0.1:
            new.writestr(random.choice(("../../x", "/x", "a/code/x", "a/data/../../../x")), b"x")
    return file.getvalue()


def legacy_file(random: Random, *, hostile: bool) -> bytes:
    """Return a file of `torch.save` before PyTorch 1.6."""
    keys = b"](" + text("0") + text("1") + b"e." if not hostile or random.random() < 0.8 else program(random)[2:]
    head = b"\x80\x02" + whole(_MAGIC) + b"." + b"\x80\x02" + whole(1001) + b"." + b"\x80\x02}."
    count = random.choice((6, 6, 7, 2**40, 2**63)) if hostile else 6
    tail = b"".join(count.to_bytes(8, "little") + data for data in _STORAGES.values())
    return head + state(random, legacy=True, hostile=hostile) + b"\x80\x02" + keys + tail
