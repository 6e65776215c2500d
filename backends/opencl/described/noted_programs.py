"""The programs that a described device would build. Implements `polyhal.hal.core.kernels.library.KernelLibrary`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from polyhal.backends.common.codegen.preprocessor import ActiveText
from polyhal.backends.common.codegen.templating import Definitions
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.opencl.described.description import OfflineCompiler
from polyhal.backends.opencl.described.local_memory import declared_local_memory
from polyhal.backends.opencl.described.noted_launch import NotedLaunch
from polyhal.backends.opencl.described.offline_compilers import compile_all
from polyhal.backends.opencl_c.features import KernelFeatures
from polyhal.backends.opencl_c.program_texts import ProgramTexts
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.kernels.library import ProgramBuild


class NotedPrograms(ProgramTexts):
    """The kernel files of a described device, and the launches of their kernels."""

    ready_when_built = True

    def __init__(
        self, features: Callable[[], KernelFeatures], info: DeviceInfo, compiler: OfflineCompiler | None
    ) -> None:
        """`compiler` is None if the device has no offline compiler."""
        super().__init__(features, info)
        self._compiler = compiler
        self._active = ActiveText(self._sources.read)
        self._local_memory: dict[tuple[Any, ...], int] = {}
        self._launches: dict[NotedLaunch, None] = {}
        self._builds: dict[str, ProgramBuild] = {}

    @property
    def launches(self) -> Sequence[NotedLaunch]:
        """Distinct launches so far, in order."""
        return list(self._launches)

    @property
    def program_builds(self) -> Sequence[ProgramBuild]:
        """Programs so far; none was compiled."""
        return list(self._builds.values())

    def note(self, launch: NotedLaunch) -> None:
        """Remember a launch and its program."""
        with self._lock:
            self._launches.setdefault(launch)
            digest = DiskCache.key([*launch.options, launch.text])
            self._builds.setdefault(digest, ProgramBuild(launch.file, digest, 0.0, compiled=False))

    def local_memory(self, file: str, kernel: str, definitions: Definitions) -> int:
        """Return the bytes of local memory that a kernel declares.

        Raises ValueError for declarations that it cannot parse.
        """
        key = (file, kernel, tuple(definitions.items()))
        with self._lock:
            if key not in self._local_memory:
                pieces = self._active.pieces(file, {**self._device_definitions, **definitions})
                self._local_memory[key] = declared_local_memory(pieces, kernel)
            return self._local_memory[key]

    def reload(self) -> None:
        """Read all files again."""
        super().reload()
        with self._lock:
            self._active.forget()
            self._local_memory.clear()

    def statistics(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the figures of the vendor's offline compiler for the launched kernels of a file.

        Raises BackendError with install instructions if there is no compiler, and KernelBuildError if it refuses a
        program.
        """
        launches = [launch for launch in self.launches if launch.file == name]
        figures = compile_all(self._compiler, launches, self._name) if launches else {}
        return [
            {"kernel": launch.kernel, "definitions": dict(launch.definitions), "group": prod(launch.group)}
            | figures[launch]
            for launch in launches
        ]
