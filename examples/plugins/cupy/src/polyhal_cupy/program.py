"""Programs: CUDA C compiled by NVRTC once per device, and cached in memory and on disk."""

from __future__ import annotations

import re
import threading
from typing import Any

from cupy.cuda import Module, nvrtc

from polyhal.backends.common.codegen.templating import Definitions, SourceFolder
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.common.launching.kernel_signature import KernelSignature, KernelSignatures
from polyhal.hal.errors import KernelBuildError, message
from polyhal.hal.settings import env
from polyhal_cupy import error_mapping

KERNELS = "polyhal_cupy.kernels"
KERNEL_WORDS = "KERNEL"
"""Macro that begins each kernel's declaration (kernels/lib/dtypes.cuh)."""
OPTIONS = ("-std=c++17", "--device-as-default-execution-space")
_CONTEXT_LINES = 4


class ProgramStore:
    """Programs of one device with compute capability `architecture` (90 for 9.0)."""

    def __init__(self, architecture: int, device_name: str) -> None:
        self._name = device_name
        supported = max(a for a in nvrtc.getSupportedArchs() if a <= architecture)
        # For a device newer than the compiler, compile to PTX of the newest known architecture; the driver translates it.
        self._binary = supported == architecture
        self._target = f"-arch={'sm' if self._binary else 'compute'}_{supported}"
        self._sources = SourceFolder(KERNELS)
        self._declared = KernelSignatures(self._sources.read, KERNEL_WORDS)
        self._signatures: dict[tuple[Any, ...], KernelSignature] = {}
        self._modules: dict[tuple[Any, ...], Module] = {}
        self._lock = threading.Lock()
        self.builds = 0
        """Number of programs compiled from source, for tests."""
        self.disk = None if env.no_program_cache() else DiskCache(env.cache_dir() / "cuda" / "programs")

    def function(self, source: str, name: str, definitions: Definitions) -> Any:
        """Return kernel `name` of the file `source`, built with these definitions. Raises KernelBuildError."""
        key = (source, tuple(definitions.items()))
        with self._lock:
            module = self._modules.get(key)
            if module is None:
                text = self._sources.assemble(source, definitions)
                module = self._modules[key] = self._load(source, text)
        return module.get_function(name)

    def signature(self, source: str, name: str, definitions: Definitions) -> KernelSignature:
        """Return the parameters of kernel `name` of the file `source` with these definitions. Raises KernelBuildError."""
        key = (source, name, tuple(definitions.items()))
        with self._lock:
            signature = self._signatures.get(key)
            if signature is None:
                try:
                    signature = self._declared.of(source, name, definitions)
                except ValueError as error:
                    problem = f"the parameters of the kernel cannot be parsed: {error}"
                    raise KernelBuildError(message(source, problem, device=self._name)) from None
                self._signatures[key] = signature
        return signature

    def _load(self, label: str, text: str) -> Module:
        options = (self._target, *OPTIONS)
        key = DiskCache.key([".".join(map(str, nvrtc.getVersion())), *options, text])
        code = self.disk.load(key) if self.disk is not None else None
        if code is None:
            code = compiled(label, text, options, self._binary, self._name)
            self.builds += 1
            if self.disk is not None:
                self.disk.store(key, code)
        module = Module()
        try:
            module.load(code)
        except error_mapping.ERRORS as error:
            raise error_mapping.translate(error, f"loading {label}", self._name) from error
        return module


def compiled(label: str, text: str, options: tuple[str, ...], binary: bool, device: str) -> bytes:
    """Compile `text` to machine code (`binary`) or PTX. `label` names it in errors. Raises KernelBuildError."""
    program = nvrtc.createProgram(text, label, (), ())
    try:
        nvrtc.compileProgram(program, options)
        code: bytes = nvrtc.getCUBIN(program) if binary else nvrtc.getPTX(program)
        return code
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program) or str(error)
        raise KernelBuildError(_explain(label, text, options, log, device)) from None
    finally:
        nvrtc.destroyProgram(program)


_LINE = re.compile(r"\((\d+)\): error")


def _explain(label: str, text: str, options: tuple[str, ...], log: str, device: str) -> str:
    """Return the compiler's log with the numbered source lines around the first error."""
    lines = text.splitlines()
    match = _LINE.search(log)
    centre = int(match.group(1)) if match else 1
    first, last = max(1, centre - _CONTEXT_LINES), min(len(lines), centre + _CONTEXT_LINES)
    shown = "\n".join(f"{'>' if n == centre else ' '}{n:5d} | {lines[n - 1]}" for n in range(first, last + 1))
    problem = message(label, "NVRTC rejected the kernel", fix="report this with the log below", device=device)
    return f"{problem}\noptions: {' '.join(options)}\nsource:\n{shown}\nlog:\n{log.strip()}"
