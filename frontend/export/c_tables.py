"""The generated C of an exported step: tables of its buffers, kernels, launches and numbers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import polyhal
from polyhal.export import c_text
from polyhal.export.c_files import TensorFileLayout, constant_file, state_file
from polyhal.export.c_text import array, byte_array, pointer, string
from polyhal.export.program import (
    BufferUse,
    LiteralNumber,
    NamedNumber,
    NumberOperation,
    ProgramLaunch,
    ProgramTensor,
    StepProgram,
    StreamNumber,
    ValueBytes,
)
from polyhal.hal.launch_descriptions import DeviceNames, LocalArgument

STATE_FILE, CONSTANT_FILE, KERNEL_FOLDER = "state.safetensors", "constants.safetensors", "kernels"
_OPERATIONS = {
    "add": "ADD",
    "sub": "SUBTRACT",
    "mul": "MULTIPLY",
    "truediv": "DIVIDE",
    "floordiv": "FLOOR_DIVIDE",
    "mod": "MODULO",
    "pow": "POWER",
    "neg": "NEGATIVE",
    "pos": "POSITIVE",
    "abs": "ABSOLUTE",
    "expm1": "EXPM1",
    "log": "LOG",
    "sqrt": "SQRT",
    "sign": "SIGN",
    "greater": "GREATER",
    "less": "LESS",
    "not_equal": "NOT_EQUAL",
    "maximum": "MAXIMUM",
    "minimum": "MINIMUM",
    "where": "WHERE",
    "bool": "TO_BOOL",
    "int": "TO_INT",
    "float": "TO_FLOAT",
}
"""Names in polyhal_step.h of the operations on numbers."""
_SCALARS = {1: "BITS8", 2: "BITS16", 4: "BITS32", 8: "BITS64"}
_EXTENSION = re.compile(r"#\s*pragma\s+OPENCL\s+EXTENSION\s+(\w+)\s*:\s*enable")


@dataclass(slots=True)
class CStep:
    """Parts of an export: C source and data files."""

    source: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """Data files by path."""


def c_step(program: StepProgram, names: DeviceNames, prefix: str, *, embed: bool) -> CStep:
    """Return the tables of a program for OpenCL, and the data files unless they are embedded in the tables."""
    return _TableWriter(program, names, prefix, embed).written()


class _TableWriter:
    def __init__(self, program: StepProgram, names: DeviceNames, prefix: str, embed: bool) -> None:
        self._program, self._names, self._prefix, self._embed = program, names, prefix, embed
        self._step = CStep()
        self._parts: list[str] = []
        self._numbers: dict[int, int] = {}
        """Position in C's table of each number of the program: literals have entries of their own there."""
        self._programs: dict[tuple[str, str, str], int] = {}

    def written(self) -> CStep:
        program = self._program
        self._add(
            f"/* The tables of {c_text.comment(program.name)}, written by Polyhal {polyhal.__version__}: what the functions of "
            f"runtime/polyhal_step.h run.\n *\n * {len(program.commands)} launches; "
            f"{program.bytes_of('state')} bytes of state, {program.bytes_of('temporary')} of intermediate values.\n */\n"
        )
        self._add(f'#include "{self._prefix}.h"\n#include "polyhal_tables.h"\n\n')
        self._buffers()
        self._kernels()
        self._tensors("inputs", program.inputs)
        self._tensors("outputs", program.outputs)
        self._tensors("state", program.state)
        named, numbers = self._number_tables()
        self._launches()
        constants = [(i, b) for i, b in enumerate(program.buffers) if b.role == "constant" and b.content]
        entries = [ProgramTensor(str(i), i, 0, "uint8", (len(b.content),), (1,)) for i, b in constants]
        self._tensors("constants", entries)
        self._file("state", STATE_FILE, state_file(program))
        constant = constant_file([b.content for _, b in constants])
        if constant is not None:
            self._file("constant", CONSTANT_FILE, constant)
        self._program_table(named, numbers, len(entries))
        self._step.source = "".join(self._parts)
        return self._step

    def _add(self, text: str) -> None:
        self._parts.append(text)

    def _buffers(self) -> None:
        rows = [f"{b.nbytes}, /* {i}: {b.role} */" for i, b in enumerate(self._program.buffers)]
        self._add("static const size_t buffers[] = {\n" + "".join(f"    {r}\n" for r in rows) + "};\n\n")

    # --- kernels ----------------------------------------------------------------------------------------------------

    def _kernels(self) -> None:
        for kernel in self._program.kernels:
            self._programs.setdefault((kernel.source, kernel.options, kernel.entry), len(self._programs))
        rows: list[str] = []
        for (source, options, entry), i in self._programs.items():
            data = source.encode()
            if self._embed:
                parts = c_text.lines(source)
                self._add(array("char *const", f"kernel_{i}", parts))
                place = f"kernel_{i}, {len(parts)}, NULL, 0, NULL"
            else:
                path = f"{KERNEL_FOLDER}/{i:02d}_{entry}.cl"
                self._step.files[path] = data
                place = f"NULL, 0, {string(path)}, {len(data)},\n     {string(hashlib.sha256(data).hexdigest())}"
            rows.append(f"{{{string(entry)}, {string(options)}, {place}}}")
        self._add(array("polyhal_kernel", "kernels", rows))

    def _launches(self) -> None:
        rows: list[str] = []
        for number, launch in enumerate(self._program.launches):
            kernel = self._program.kernels[launch.kernel]
            self._add(f"/* {c_text.comment(launch.op)}: {kernel.entry} */\n")
            for place, argument in enumerate(launch.arguments):
                if isinstance(argument, ValueBytes) and not argument.numbers and len(argument.data) not in _SCALARS:
                    self._add(byte_array(f"bytes_{number}_{place}", argument.data).rstrip("\n") + "\n")
            name = f"arguments_{number}"
            entries = [self._argument(a, f"bytes_{number}_{i}") for i, a in enumerate(launch.arguments)]
            self._add(array("polyhal_argument", name, entries))
            items = [n * g for n, g in zip(launch.grid, kernel.group, strict=True)]
            sizes = ", ".join(_three(x) for x in (items, kernel.group))
            index = self._programs[kernel.source, kernel.options, kernel.entry]
            rows.append(f"{{{index}, {len(entries)}, {pointer(name, entries)}, {len(items)}, {sizes}}}")
        self._add(array("polyhal_launch", "launches", rows))

    def _argument(self, argument: BufferUse | ValueBytes | LocalArgument, name: str) -> str:
        if isinstance(argument, BufferUse):
            return f"BUFFER({argument.buffer})"
        if isinstance(argument, LocalArgument):
            return f"LOCAL({argument.nbytes})"
        if argument.numbers:
            (number,) = argument.numbers
            return f"NUMBER(POLYHAL_{number.type.upper()}, {self._numbers[number.number]})"
        if len(argument.data) not in _SCALARS:
            return f"BYTES({name})"
        return f"{_SCALARS[len(argument.data)]}({int.from_bytes(argument.data, 'little')}u)"

    # --- tensors and files ------------------------------------------------------------------------------------------

    def _tensors(self, name: str, tensors: Sequence[ProgramTensor]) -> None:
        rows = []
        for x in tensors:
            start, stop = x.span()
            rows.append(
                f"{{{string(x.name)}, {string(x.dtype)}, {string(str(list(x.shape)))}, {stop - start}, {x.buffer}, {start}}}"
            )
        self._add(array("polyhal_tensor", name, rows))

    def _file(self, name: str, path: str, layout: TensorFileLayout) -> None:
        rows = [f"{{{string(e.name)}, {string(e.prefix)}, {e.nbytes}, {e.at}, {e.hash_at}}}" for e in layout.entries]
        self._add(array("polyhal_entry", f"{name}_entries", rows))
        self._add(byte_array(f"{name}_header", layout.header))
        if self._embed:
            self._add(byte_array(f"{name}_data", layout.data))
            place = f"NULL, {name}_data"
        else:
            self._step.files[path] = layout.data
            place = f"{string(path)}, NULL"
        size, entries = len(layout.data), pointer(f"{name}_entries", rows)
        self._add(
            f"static const polyhal_file {name}_file = {{{place}, {size}, {name}_header, {len(layout.header)}, {len(rows)}, "
            f"{entries}}};\n\n"
        )

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _number_tables(self) -> tuple[int, int]:
        """Write the numbers. Returns how many are named, and how many there are in all."""
        rows: list[str] = []
        named: list[str] = []
        for i, number in enumerate(self._program.numbers):
            if isinstance(number, NamedNumber):
                row = _number("NAMED", [len(named)], note=number.name)
                named.append(f"{{{string(number.name)}, {int(isinstance(number.value, float))}, {number.grows}}}")
            elif isinstance(number, StreamNumber):
                kind = "SEED" if number.start is None else "OFFSET"
                row = _number(kind, [number.stream], integer=number.start or 0)
            else:
                row = _number(_OPERATIONS[number.operation], self._operands(number, rows), note=number.operation)
            self._numbers[i] = len(rows)
            rows.append(row)
        self._add(array("polyhal_number", "numbers", rows))
        self._add(array("polyhal_named", "named", named))
        self._add(array("polyhal_stream", "streams", [f"{{{s.blocks}u}}" for s in self._program.streams]))
        return len(named), len(rows)

    def _operands(self, number: NumberOperation, rows: list[str]) -> list[int]:
        """Return the positions of operands; literals are added to `rows`."""
        positions: list[int] = []
        for x in number.operands:
            if isinstance(x, LiteralNumber):
                positions.append(len(rows))
                rows.append(_literal(x.value))
            else:
                positions.append(self._numbers[x.number])
        return positions

    # --- the step ---------------------------------------------------------------------------------------------------

    def _program_table(self, named: int, numbers: int, constants: int) -> None:
        program, names = self._program, self._names
        launches = list(program.launches)
        used = {x for k in program.kernels for x in _EXTENSION.findall(k.source)}
        extensions = " ".join(sorted(used & names.extensions))
        group = max((prod(k.group) for k in program.kernels), default=1)
        local = max(map(_local_bytes, launches), default=0)
        rows = [
            "POLYHAL_FORMAT",
            string(program.name),
            string(polyhal.__version__),
            *map(string, (names.platform, names.device, names.driver, extensions)),
            f"{group}, {local}",
            f"{len(program.buffers)}, buffers",
            f"{len(self._programs)}, {pointer('kernels', launches)}",
            f"{len(launches)}, {pointer('launches', launches)}",
            f"{len(program.inputs)}, {pointer('inputs', program.inputs)}",
            f"{len(program.outputs)}, {pointer('outputs', program.outputs)}",
            f"{len(program.state)}, {pointer('state', program.state)}",
            f"{constants}, {pointer('constants', range(constants))}",
            f"{numbers}, {pointer('numbers', range(numbers))}",
            f"{named}, {pointer('named', range(named))}",
            f"{len(program.streams)}, {pointer('streams', program.streams)}",
            f"&state_file, {'&constant_file' if constants else 'NULL'}",
        ]
        body = ",\n".join(f"    {r}" for r in rows)
        self._add(f"const polyhal_program {self._prefix}_program = {{\n{body},\n}};\n")


def _three(sizes: Sequence[int]) -> str:
    return "{" + ", ".join(str(n) for n in (*sizes, *[1] * (3 - len(sizes)))) + "}"


def _local_bytes(launch: ProgramLaunch) -> int:
    return sum(a.nbytes for a in launch.arguments if isinstance(a, LocalArgument))


def _number(
    operation: str, operands: Sequence[int], integer: int = 0, real: str = "0.0", is_float: int = 0, note: str = ""
) -> str:
    three = ", ".join(str(n) for n in (*operands, *[0] * (3 - len(operands))))
    noted = f" /* {c_text.comment(note)} */" if note else ""
    return f"{{POLYHAL_{operation}, {{{three}}}, {is_float}, {integer}, {real}}}{noted}"


def _literal(value: bool | int | float) -> str:
    if isinstance(value, float):
        # Hexadecimal digits are exact; HUGE_VAL and NAN are not constants everywhere, quotients of constants are.
        text = (
            value.hex()
            if value - value == 0
            else "0.0 / 0.0"
            if value != value
            else f"{'-' if value < 0 else ''}1.0 / 0.0"
        )
        return _number("CONSTANT", [], real=text, is_float=1, note=repr(value))
    return _number("CONSTANT", [], integer=int(value))
