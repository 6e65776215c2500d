"""Reads programs from data of any shape, and checks all of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import prod
from typing import Any, NoReturn, TypeVar

from polyhal.export.operations import OPERATIONS, operand_count
from polyhal.export.program import (
    LANGUAGES,
    ROLES,
    SCALAR_BYTES,
    BufferUse,
    ChangingNumber,
    LiteralNumber,
    NamedNumber,
    NumberOperation,
    NumberReference,
    ProgramBuffer,
    ProgramCopy,
    ProgramKernel,
    ProgramLaunch,
    ProgramNumber,
    ProgramStream,
    ProgramTensor,
    StepProgram,
    StreamNumber,
    ValueBytes,
    check_name,
)
from polyhal.hal.dtypes import as_dtype
from polyhal.hal.errors import CorruptFileError, IncompatibleFileError, message
from polyhal.hal.launch_descriptions import LocalArgument

T = TypeVar("T")

_MOST = 2**53 - 1
"""The largest integer of the header: JavaScript's are exact up to it."""
_LARGEST_PARAMETER = 1 << 16
_FLOAT = re.compile(r"-?(\d+(\.\d+)?(e[+-]?\d+)?|inf)|nan", re.ASCII)
_WEB_GRID, _WEB_BINDINGS = 65535, 1000
"""Groups along an axis, and bindings of a launch, that every browser with WebGPU accepts."""


class ProgramReader:
    """Reads one program. Raises CorruptFileError, which names the entry."""

    def __init__(self, source: str, header: Any, contents: bytes) -> None:
        self._source = source
        self._header = header
        self._contents = contents
        self._at = "the header"
        self._program = StepProgram("", "")

    def program(self, expected: str, schema: int) -> StepProgram:
        """Return the program. Raises IncompatibleFileError for another format or version."""
        header = self._header
        if not isinstance(header, Mapping) or header.get("format") != expected:
            raise IncompatibleFileError(message("load_program", f"{self._source} is no program", expected=expected))
        if type(header.get("schema")) is not int or header["schema"] != schema:
            raise IncompatibleFileError(
                message(
                    "load_program",
                    f"{self._source} has schema {header.get('schema')!r}",
                    expected=f"schema {schema}",
                    fix="export it again with this version",
                )
            )
        self._check_contents()
        features = tuple(self._text(x) for x in self._list(header, "features"))
        read = self._program = StepProgram(self._text(header.get("name")), self._text(header.get("target")), features)
        with self._reading("name"):
            check_name(read.name)
        read.buffers.extend(self._each("buffers", self._buffer))
        self._whole(sum(b.nbytes for b in read.buffers))
        for name in ("inputs", "outputs", "state"):
            tensors: list[ProgramTensor] = getattr(read, name)
            tensors.extend(self._each(name, self._tensor))
            self._check_names(name, [x.name for x in tensors])
        read.streams.extend(self._each("streams", self._stream))
        for number, entry in enumerate(self._list(header, "numbers")):
            with self._reading(f"number {number}"):
                read.numbers.append(self._number(entry, number))
        self._check_names("numbers", [n.name for n in read.numbers if isinstance(n, NamedNumber)])
        read.kernels.extend(self._each("kernels", self._kernel))
        read.commands.extend(self._each("commands", self._command))
        return read

    # --- parts ------------------------------------------------------------------------------------------------------

    def _check_contents(self) -> None:
        with self._reading("contents"):
            declared = self._mapping(self._header.get("contents"))
            if declared.get("nbytes") != len(self._contents):
                self._fail(f"{len(self._contents)} bytes, and the header says {declared.get('nbytes')}")
            if declared.get("sha256") != hashlib.sha256(self._contents).hexdigest():
                self._fail("the contents of the buffers were altered")

    def _buffer(self, entry: Mapping[str, Any]) -> ProgramBuffer:
        role, nbytes = entry.get("role"), self._whole(entry.get("nbytes"), 1)
        if role not in ROLES:
            self._fail(f"role {role!r}; expected one of {', '.join(ROLES)}")
        content = b""
        if "content" in entry:
            start, length = self._wholes(entry["content"], 2)
            if start + length > len(self._contents) or length > nbytes:
                self._fail(f"{length} bytes at {start}, of {len(self._contents)} for a buffer of {nbytes}")
            content = self._contents[start : start + length]
        return ProgramBuffer(role, nbytes, content)

    def _tensor(self, entry: Mapping[str, Any]) -> ProgramTensor:
        shape, strides = entry.get("shape"), entry.get("strides")
        if not isinstance(shape, list) or not isinstance(strides, list) or len(shape) != len(strides):
            self._fail(f"shape {shape!r} with strides {strides!r}")
        if len(shape) > 64 or any(type(s) is not int or abs(s) > _MOST for s in strides):
            self._fail(f"{len(shape)} axes with strides {strides!r}")
        tensor = ProgramTensor(
            self._name(entry),
            self._index(entry.get("buffer"), self._program.buffers, "buffer"),
            self._whole(entry.get("offset")),
            as_dtype(self._text(entry.get("dtype"))).name,
            tuple(self._whole(n) for n in shape),
            tuple(strides),
            as_dtype(self._text(entry["saved_dtype"])).name if "saved_dtype" in entry else "",
        )
        self._whole(prod(tensor.shape) * as_dtype(tensor.dtype).itemsize)
        low, high = tensor.span()
        if low < 0 or high > self._program.buffers[tensor.buffer].nbytes:
            self._fail(f"{tensor.name} reaches bytes {low} to {high} of its buffer")
        return tensor

    def _stream(self, entry: Mapping[str, Any]) -> ProgramStream:
        return ProgramStream(*(self._decimal(entry.get(k), 0) for k in ("seed", "offset", "blocks")))

    def _number(self, entry: Any, number: int) -> ProgramNumber:
        entry = self._mapping(entry)
        if "stream" in entry:
            start = entry.get("start")
            stream = self._index(entry["stream"], self._program.streams, "stream")
            return StreamNumber(stream, None if start is None else self._decimal(start, 0))
        if "operation" in entry:
            name, operands = entry["operation"], self._list(entry, "operands")
            if name not in OPERATIONS:
                self._fail(f"operation {name!r}; expected one of {', '.join(OPERATIONS)}")
            if len(operands) != operand_count(name):
                self._fail(f"{name} of {len(operands)} operands; expected {operand_count(name)}")
            return NumberOperation(name, tuple(self._operand(x, number) for x in operands))
        grows = self._decimal(entry["grows"]) if "grows" in entry else 0
        return NamedNumber(self._name(entry), self._literal(entry), grows)

    def _operand(self, entry: Any, number: int) -> NumberReference | LiteralNumber:
        entry = self._mapping(entry)
        if "number" in entry:
            return NumberReference(self._index(entry["number"], range(number), "earlier number"))
        return LiteralNumber(self._literal(entry))

    def _literal(self, entry: Mapping[str, Any]) -> bool | int | float:
        kind, text = entry.get("type"), self._text(entry.get("value"))
        if kind == "bool" and text in ("True", "False"):
            return text == "True"
        if kind == "int":
            return self._decimal(text)
        if kind != "float":
            self._fail(f"a number of type {kind!r}; expected bool, int or float")
        if not _FLOAT.fullmatch(text):
            self._fail(f"{text[:50]!r}; expected a decimal number, inf, -inf or nan")
        return float(text)

    def _kernel(self, entry: Mapping[str, Any]) -> ProgramKernel:
        language = entry.get("language")
        if language not in LANGUAGES:
            self._fail(f"language {language!r}; expected {' or '.join(LANGUAGES)}")
        name, start, source, options = (self._text(entry.get(k)) for k in ("name", "entry", "source", "options"))
        group = tuple(self._whole(n, 1) for n in self._list(entry, "group"))
        return ProgramKernel(name, language, start, source, options, group)

    def _command(self, entry: Mapping[str, Any]) -> ProgramLaunch | ProgramCopy:
        if "copy" in entry:
            return self._copy(self._mapping(entry["copy"]))
        kernel = self._index(entry.get("kernel"), self._program.kernels, "kernel")
        arguments = tuple(self._argument(self._mapping(a)) for a in self._list(entry, "arguments"))
        language, group = self._program.kernels[kernel].language, self._program.kernels[kernel].group
        grid = tuple(self._whole(n, 1) for n in self._list(entry, "grid"))
        if not 1 <= len(grid) <= 3 or (language == "opencl-c" and len(group) != len(grid)):
            self._fail(f"a grid of {len(grid)} axes, of groups of {len(group)}")
        self._whole(prod(grid) * prod(group))
        if language == "wgsl":
            self._check_web_launch(arguments, grid)
        return ProgramLaunch(kernel, arguments, grid, self._text(entry.get("op", "")))

    def _copy(self, entry: Mapping[str, Any]) -> ProgramCopy:
        source, target = (self._index(entry.get(k), self._program.buffers, "buffer") for k in ("source", "target"))
        start, end, nbytes = (self._whole(entry.get(k)) for k in ("source_offset", "target_offset", "nbytes"))
        for buffer, offset in ((source, start), (target, end)):
            self._check_range(buffer, offset, nbytes)
        return ProgramCopy(source, start, target, end, nbytes)

    def _argument(self, entry: Mapping[str, Any]) -> BufferUse | ValueBytes | LocalArgument:
        if "local" in entry:
            return LocalArgument(self._whole(entry["local"], 1))
        if "bytes" in entry:
            data = bytes.fromhex(self._text(entry["bytes"]))
            if len(data) > _LARGEST_PARAMETER or 2 * len(data) != len(entry["bytes"]):
                self._fail(f"{len(data)} bytes of parameters")
            numbers = self._list(entry, "numbers") if "numbers" in entry else []
            return ValueBytes(data, tuple(self._changing(self._mapping(n), len(data)) for n in numbers))
        buffer = self._index(entry.get("buffer"), self._program.buffers, "buffer")
        offset, nbytes = self._whole(entry.get("offset")), self._whole(entry.get("nbytes"), 1)
        self._check_range(buffer, offset, nbytes)
        access = entry.get("access")
        if access not in ("read", "write", "read_write"):
            self._fail(f"access {access!r}")
        return BufferUse(buffer, offset, nbytes, access, self._whole(entry.get("binding")))

    def _changing(self, entry: Mapping[str, Any], end: int) -> ChangingNumber:
        kind, offset = entry.get("type"), self._whole(entry.get("offset"))
        if kind not in SCALAR_BYTES or offset + SCALAR_BYTES[kind] > end:
            self._fail(f"a number of type {kind!r} at byte {offset} of {end}")
        return ChangingNumber(offset, kind, self._index(entry.get("number"), self._program.numbers, "number"))

    # --- checks -----------------------------------------------------------------------------------------------------

    def _each(self, name: str, read: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
        for number, entry in enumerate(self._list(self._header, name)):
            with self._reading(f"{name}[{number}]"):
                yield read(self._mapping(entry))

    @contextmanager
    def _reading(self, at: str) -> Iterator[None]:
        self._at = at
        try:
            yield
        except CorruptFileError:
            raise
        # Entries are data from a file, of any shape.
        except (ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
            raise self._error(f"{type(error).__name__}: {error}") from error

    def _check_range(self, buffer: int, offset: int, nbytes: int) -> None:
        size = self._program.buffers[buffer].nbytes
        if offset + nbytes > size:
            self._fail(f"bytes {offset} to {offset + nbytes} of buffer {buffer}, which has {size}")

    def _check_web_launch(self, arguments: Sequence[object], grid: Sequence[int]) -> None:
        uses = [a for a in arguments if isinstance(a, BufferUse)]
        bindings = sorted(u.binding for u in uses)
        if any(a == b for a, b in pairwise(bindings)) or bindings[-1:] > [_WEB_BINDINGS - 1]:
            self._fail(f"bindings {bindings}; expected each once, below {_WEB_BINDINGS}")
        bound = [u.buffer for u in uses]
        for use in uses:
            if use.access != "read" and bound.count(use.buffer) > 1:
                self._fail(
                    f"buffer {use.buffer} is bound {bound.count(use.buffer)} times, and binding {use.binding} writes it"
                )
        if max(grid) > _WEB_GRID:
            self._fail(f"a grid of {list(grid)}; expected at most {_WEB_GRID} groups along an axis")

    def _check_names(self, what: str, names: list[str]) -> None:
        if len(set(names)) < len(names):
            repeated = sorted({n for n in names if names.count(n) > 1})
            self._fail(f"{what} with the same names: {', '.join(repeated)}")

    def _list(self, entry: Any, key: str) -> list[Any]:
        found = entry.get(key)
        if not isinstance(found, list):
            self._fail(f"{key} is a {type(found).__name__}; expected a list")
        return found

    def _mapping(self, entry: Any) -> Mapping[str, Any]:
        if not isinstance(entry, Mapping):
            self._fail(f"a {type(entry).__name__}; expected an object")
        return entry

    def _text(self, value: Any) -> str:
        if not isinstance(value, str):
            self._fail(f"{value!r}; expected text")
        return value

    def _name(self, entry: Mapping[str, Any]) -> str:
        name = self._text(entry.get("name"))
        check_name(name)
        return name

    def _whole(self, value: Any, least: int = 0) -> int:
        if type(value) is not int or not least <= value <= _MOST:
            self._fail(f"{value!r}; expected a whole number of at least {least}")
        return value

    def _wholes(self, value: Any, count: int) -> list[int]:
        if not isinstance(value, list) or len(value) != count:
            self._fail(f"{value!r}; expected {count} numbers")
        return [self._whole(n) for n in value]

    def _decimal(self, value: Any, least: int | None = None) -> int:
        text = self._text(value)
        is_decimal = len(text) <= 40 and text.isascii() and text.removeprefix("-").isdecimal()
        if not is_decimal or (least is not None and int(text) < least):
            self._fail(f"{text[:50]!r}; expected a decimal integer")
        return int(text)

    def _index(self, value: Any, of: Any, what: str) -> int:
        if type(value) is not int or not 0 <= value < len(of):
            self._fail(f"{what} {value!r} of {len(of)}")
        return value

    def _fail(self, problem: str) -> NoReturn:
        raise self._error(problem)

    def _error(self, problem: str) -> CorruptFileError:
        return CorruptFileError(
            message("load_program", f"{self._source}, {self._at}: {problem}", fix="export it again")
        )
