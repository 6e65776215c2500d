"""ocloc, the offline compiler of the compute runtime: figures from the .ze_info of its zebin files, and from warnings.

Sources: Tool Interface Standard (TIS) Executable and Linking Format 1.2; documentation/zebin of the graphics compiler.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path

from polyhal.backends.common.described.offline_tools import CompilerRefusalError, run

_SPILLS = re.compile(r"kernel (\w+)\s+compiled SIMD\d+ allocated \d+ regs and spilled around (\d+)")
_KERNELS = re.compile(r"^kernels:.*?(?=^\w|\Z)", re.MULTILINE | re.DOTALL)
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_BUFFER = r"usage: +{} *\n +size: +(\d+)"
_MATRIX_INSTRUCTIONS = re.compile(r"has_dpas: +true")
_FIGURES = {
    "lanes": r"simd_size: +(\d+)",
    "spilled_bytes": _BUFFER.format("spill_fill_space"),
    "private_bytes": _BUFFER.format("(?:private|single)_space"),
    "local_bytes": r"slm_size: +(\d+)",
}


def compiled(executable: Path, device: Sequence[str], options: Sequence[str], text: str) -> dict[str, dict[str, int]]:
    """Return the figures of each kernel: sub-group size, spilled registers, and bytes.

    `device` are the options that name the device. Raises CompilerRefusalError.
    """
    with tempfile.TemporaryDirectory(prefix="polyhal-ocloc-") as name:
        folder = Path(name)
        (folder / "program.cl").write_text(text, encoding="utf-8")
        arguments = [
            "compile",
            "-file",
            "program.cl",
            *device,
            "-options",
            " ".join([*options, "-w"]),
            "-out_dir",
            "out",
            "-output",
            "program",
            "-output_no_suffix",
        ]
        said = "\n".join(run(executable, arguments, folder))
        binary = next(
            (f.read_bytes() for f in sorted((folder / "out").glob("*")) if f.read_bytes()[:4] == b"\x7fELF"), b""
        )
    if not binary:
        raise CompilerRefusalError(f"no ELF file was made\n{said}")
    spills = dict(_SPILLS.findall(said))
    kernels = _KERNELS.search(_section(binary, ".ze_info").decode())
    found = {}
    for block in re.split(r"^  - name: +", kernels[0] if kernels else "", flags=re.MULTILINE)[1:]:
        kernel = re.split(r"\s", block, maxsplit=1)[0].strip("'\"")
        found[kernel] = _figures(block) | {"spilled_registers": int(spills.get(kernel, 0))}
        if _MATRIX_INSTRUCTIONS.search(block):
            found[kernel]["matrix_instructions"] = 1  # a lower bound: the file does not contain the count
    return found


def _figures(block: str) -> dict[str, int]:
    """Return the figures of one kernel; absent ones are 0."""
    found = {name: re.search(pattern, block) for name, pattern in _FIGURES.items()}
    return {name: int(match[1]) if match else 0 for name, match in found.items()}


def _section(binary: bytes, wanted: str) -> bytes:
    """Return a section of a 64-bit ELF file. Raises CompilerRefusalError if the file lacks it."""
    (table,) = struct.unpack_from("<Q", binary, 40)
    size, count, names = struct.unpack_from("<HHH", binary, 58)
    headers = [_SECTION_HEADER.unpack_from(binary, table + i * size) for i in range(count)]
    strings = binary[headers[names][4] :]
    for header in headers:
        begin = header[0]
        if strings[begin : strings.index(b"\0", begin)].decode() == wanted:
            return binary[header[4] : header[4] + header[5]]
    raise CompilerRefusalError(f"the file that was made has no section {wanted}")
