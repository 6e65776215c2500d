"""The file format of programs: a JSON header, and one block of bytes with the initial contents of buffers.

docs/exporting.md describes it. Every file is checked as a whole when it is read: a runtime may rely on all indices and ranges.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from polyhal.export.program import (
    BufferUse,
    LiteralNumber,
    NumberOperation,
    NumberReference,
    ProgramCopy,
    ProgramLaunch,
    ProgramNumber,
    ProgramTensor,
    StepProgram,
    StreamNumber,
    ValueBytes,
)
from polyhal.export.program_reader import ProgramReader
from polyhal.hal.core.settings import json_store
from polyhal.hal.core.settings.atomic import replacing
from polyhal.hal.errors import CorruptFileError, message
from polyhal.hal.launch_descriptions import LocalArgument

FORMAT = "polyhal-program"
SCHEMA = 1
"""The version written. A reader takes files of its own version only."""
HEADER, CONTENTS = "program.json", "program.bin"
_ALIGNMENT = 256


def encode_program(program: StepProgram) -> tuple[dict[str, Any], bytes]:
    """Return a program as plain data for JSON, and the contents of its buffers."""
    contents = bytearray()
    buffers = []
    for b in program.buffers:
        entry: dict[str, Any] = {"role": b.role, "nbytes": b.nbytes}
        if b.content:
            contents += bytes(-len(contents) % _ALIGNMENT)
            entry["content"] = [len(contents), len(b.content)]
            contents += b.content
        buffers.append(entry)
    header = {
        "format": FORMAT,
        "schema": SCHEMA,
        "name": program.name,
        "target": program.target,
        "features": list(program.features),
        "contents": {"nbytes": len(contents), "sha256": hashlib.sha256(contents).hexdigest()},
        "buffers": buffers,
        "inputs": [_tensor(x) for x in program.inputs],
        "outputs": [_tensor(x) for x in program.outputs],
        "state": [_tensor(x) for x in program.state],
        "kernels": [{**asdict(k), "group": list(k.group)} for k in program.kernels],
        "commands": [_command(c) for c in program.commands],
        "numbers": [_number(n) for n in program.numbers],
        "streams": [{k: str(v) for k, v in asdict(s).items()} for s in program.streams],
    }
    return header, bytes(contents)


def decode_program(header: Any, contents: bytes, source: str) -> StepProgram:
    """Return the program of `encode_program`; `source` names it in messages.

    Raises CorruptFileError, naming the entry, for other data, and IncompatibleFileError for other versions.
    """
    return ProgramReader(source, header, contents).program(FORMAT, SCHEMA)


def save_program(program: StepProgram, folder: str | os.PathLike[str]) -> Path:
    """Write a program as `program.json` and `program.bin` in a folder, which is made if it does not exist."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    header, contents = encode_program(program)
    with replacing(target / CONTENTS) as file:
        file.write(contents)
    with replacing(target / HEADER) as file:
        file.write(json.dumps(header, indent=1).encode())
    return target


def load_program(folder: str | os.PathLike[str]) -> StepProgram:
    """Read a program from a folder of `save_program`.

    Raises FileNotFoundError, CorruptFileError, which names the entry, and IncompatibleFileError.
    """
    source = Path(folder)
    header = json_store.parse((source / HEADER).read_bytes(), source / HEADER)
    try:
        contents = (source / CONTENTS).read_bytes()
    except FileNotFoundError as error:
        raise CorruptFileError(message("load_program", f"{source} has no {CONTENTS}", fix="export it again")) from error
    return decode_program(header, contents, str(source / HEADER))


def _tensor(x: ProgramTensor) -> dict[str, Any]:
    data = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(x).items()}
    if not data["saved_dtype"]:
        del data["saved_dtype"]
    return data


def _command(command: ProgramLaunch | ProgramCopy) -> dict[str, Any]:
    if isinstance(command, ProgramCopy):
        return {"copy": asdict(command)}
    arguments = [_argument(a) for a in command.arguments]
    return {"kernel": command.kernel, "arguments": arguments, "grid": list(command.grid), "op": command.op}


def _argument(argument: BufferUse | ValueBytes | LocalArgument) -> dict[str, Any]:
    if isinstance(argument, BufferUse):
        return asdict(argument)
    if isinstance(argument, LocalArgument):
        return {"local": argument.nbytes}
    numbers = [asdict(n) for n in argument.numbers]
    return {"bytes": argument.data.hex(), **({"numbers": numbers} if numbers else {})}


def _number(number: ProgramNumber) -> dict[str, Any]:
    if isinstance(number, StreamNumber):
        return {"stream": number.stream, "start": None if number.start is None else str(number.start)}
    if isinstance(number, NumberOperation):
        return {"operation": number.operation, "operands": [_operand(x) for x in number.operands]}
    return {"name": number.name, **_literal(number.value), **({"grows": str(number.grows)} if number.grows else {})}


def _operand(x: NumberReference | LiteralNumber) -> Mapping[str, Any]:
    return {"number": x.number} if isinstance(x, NumberReference) else _literal(x.value)


def _literal(value: bool | int | float) -> dict[str, str]:
    """A number as text with its type: JSON of JavaScript has neither large integers nor infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"type": "float", "value": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return {"type": type(value).__name__, "value": repr(value)}
