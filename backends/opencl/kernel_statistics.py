"""Statistics of built kernels as drivers report them: registers, memory, group sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyopencl as cl

from polyhal.backends.opencl_c import compiler_warnings

_VERBOSE = "-cl-nv-verbose"
_PTXAS_FIGURES = {
    "registers": re.compile(r"Used (\d+) registers"),
    "spilled_bytes": re.compile(r"(\d+) bytes spill stores"),
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
}
"""Figures in the build log of NVIDIA's assembler."""


def statistics(
    context: cl.Context, device: cl.Device, kernel: cl.Kernel, text: str, flags: Sequence[str]
) -> dict[str, int]:
    """Return figures of one kernel by name, sizes in bytes. Drivers omit figures that they do not track."""
    parameters = {
        "max_group_size": cl.kernel_work_group_info.WORK_GROUP_SIZE,
        "group_multiple": cl.kernel_work_group_info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
        "local_bytes": cl.kernel_work_group_info.LOCAL_MEM_SIZE,
        "private_bytes": cl.kernel_work_group_info.PRIVATE_MEM_SIZE,
    }
    figures = {}
    for name, parameter in parameters.items():
        try:
            figures[name] = int(kernel.get_work_group_info(parameter, device))  # type: ignore[call-overload]
        except cl.Error:  # some drivers refuse single parameters
            continue
    if "cl_nv_compiler_options" in device.extensions.split():
        figures |= _from_log(_log(context, device, text, flags), kernel.function_name)
    return figures


def local_bytes(kernel: cl.Kernel, device: cl.Device) -> int:
    """Return the bytes of local memory that a kernel declares; 0 if the driver does not report it."""
    try:
        return int(kernel.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, device))
    except cl.Error:
        return 0


def _log(context: cl.Context, device: cl.Device, text: str, flags: Sequence[str]) -> str:
    """Return the build log with figures. The driver only writes it when it compiles."""
    with compiler_warnings.ignored:
        program = cl.Program(context, text).build([*flags, _VERBOSE], [device], cache_dir=False)  # type: ignore[arg-type]
    return str(program.get_build_info(device, cl.program_build_info.LOG))


def _from_log(log: str, kernel: str) -> dict[str, int]:
    """Return the figures of one kernel. The lines of the log come in one block per kernel."""
    blocks = re.split(r"(?=Compiling entry function ')", log)
    block = next((b for b in blocks if f"entry function '{kernel}'" in b), log)
    return {name: int(m.group(1)) for name, pattern in _PTXAS_FIGURES.items() if (m := pattern.search(block))}
