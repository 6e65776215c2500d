"""Clang as an offline compiler for GPUs of the GCN and RDNA architectures: figures from the metadata of its assembly.

Source: LLVM, User Guide for AMDGPU Backend, code object metadata.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from polyhal.backends.common.described.offline_tools import run

_FIGURES = {
    "registers": "vgpr_count",
    "spilled_registers": "vgpr_spill_count",
    "private_bytes": "private_segment_fixed_size",
    "local_bytes": "group_segment_fixed_size",
}
_KERNEL = re.compile(r"^ +\.symbol: +'?(\w+)\.kd", re.MULTILINE)
_WAVES = re.compile(r"^\s*\.amdhsa_kernel (\w+)$.*?; Occupancy: (\d+)", re.MULTILINE | re.DOTALL)
_MATRIX_INSTRUCTION = re.compile(r"\bv_(?:dual_)?(?:wmma|mfma|dot2)\w*_\w+")
_LIBRARIES = ("/opt/rocm/amdgcn/bitcode", "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode", "/usr/amdgcn/bitcode")
"""Folders of the built-in functions, as installed by AMD and by distributions. Clang uses its own search if none exists."""


def compiled(executable: Path, device: Sequence[str], options: Sequence[str], text: str) -> dict[str, dict[str, int]]:
    """Return the figures of each kernel: registers per lane, spills, bytes, and resident waves per SIMD unit.

    `device` are the options that name the device. Raises CompilerRefusalError.
    """
    library = next((f"--rocm-device-lib-path={folder}" for folder in _LIBRARIES if Path(folder).is_dir()), None)
    arguments = ["-x", "cl", "-w", *device, *options, *([library] if library else []), "-O3", "-S", "-o", "-", "-"]
    with tempfile.TemporaryDirectory(prefix="polyhal-clang-") as folder:
        assembly, _ = run(executable, arguments, Path(folder), text)
    waves = dict(_WAVES.findall(assembly))
    kernels = re.split(r"^  - ", assembly.partition("amdhsa.kernels:")[2], flags=re.MULTILINE)
    return {
        match[1]: _figures(k) | {"waves": int(waves[match[1]])} | _matrix_instructions(assembly, match[1])
        for k in kernels
        if (match := _KERNEL.search(k))
    }


def _matrix_instructions(assembly: str, kernel: str) -> dict[str, int]:
    """Return the count of matrix-unit instructions in a kernel; empty if it has none."""
    body = assembly.partition(f"\n{kernel}:")[2].partition(f".amdhsa_kernel {kernel}\n")[0]
    count = len(_MATRIX_INSTRUCTION.findall(body))
    return {"matrix_instructions": count} if count else {}


def _figures(metadata: str) -> dict[str, int]:
    """Return the figures in the metadata of one kernel."""
    found = {name: re.search(rf"\.{key}: +(\d+)", metadata) for name, key in _FIGURES.items()}
    return {name: int(match[1]) for name, match in found.items() if match}
