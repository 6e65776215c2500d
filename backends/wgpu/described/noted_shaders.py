"""The shaders that a described adapter would compile. Implements `polyhal.hal.core.kernels.library.KernelLibrary`."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from polyhal.backends.common.codegen.templating import SourceFolder
from polyhal.backends.common.launching.disk_cache import DiskCache
from polyhal.backends.wgpu.capabilities import WGPUFeatures
from polyhal.backends.wgpu.described.noted_shader import NotedShader
from polyhal.backends.wgpu.described.translations import translate_all
from polyhal.backends.wgpu.shader import ComputePipeline, Definitions, Pipelines, environment
from polyhal.backends.wgpu.signature import binding_access, parameter_bytes, read_signature
from polyhal.hal.capabilities import DeviceInfo
from polyhal.hal.core.kernels.library import BuildFilter, KernelOverrides, ProgramBuild

_INCLUDED = re.compile(r"\{%-?\s*(?:import|include|from|extends)\s+\"([\w./]+)\"")


class NotedShaders(Pipelines):
    """The shader files of a described adapter, and the shaders built from them."""

    ready_when_built = True

    def __init__(self, features: WGPUFeatures, info: DeviceInfo, api: str) -> None:
        """`api` is the adapter's graphics API; empty for any."""
        super().__init__(features, info.name)
        self._api = api
        self._sources = SourceFolder("polyhal.shaders.wgsl")
        self._noted: dict[str, NotedShader] = {}
        self._definitions: dict[str, Definitions] = {}
        self._lock = threading.Lock()
        self.overrides = KernelOverrides(info)
        self.build_filter: BuildFilter | None = None

    @property
    def shaders(self) -> Sequence[NotedShader]:
        """Distinct shaders so far, in order of first use."""
        with self._lock:
            return list(self._noted.values())

    @property
    def program_builds(self) -> Sequence[ProgramBuild]:
        """Builds of all shaders so far. None was compiled."""
        return [ProgramBuild(s.file, DiskCache.key([s.text]), 0.0, compiled=False) for s in self.shaders]

    def pipeline(self, source: str, definitions: Definitions) -> ComputePipeline:
        """Return the pipeline of a shader file. Raises KernelBuildError."""
        pipeline = super().pipeline(source, definitions)
        with self._lock:
            self._definitions.setdefault(pipeline.native, definitions)
        return pipeline

    def note(self, pipeline: ComputePipeline) -> NotedShader | None:
        """Record that a shader is launched, and return it; None if this process does not build it."""
        text, signature = pipeline.native, pipeline.signature
        if self.build_filter is not None and not self.build_filter(signature.file, DiskCache.key([text])):
            return None
        with self._lock:
            if text not in self._noted:
                definitions = tuple(
                    (k, v) for k, v in self._definitions.get(text, {}).items() if isinstance(v, (str, int))
                )
                self._noted[text] = NotedShader(
                    signature.file,
                    pipeline.name,
                    definitions,
                    text,
                    len(binding_access(text)),
                    parameter_bytes(signature),
                )
            return self._noted[text]

    def names(self) -> list[str]:
        """Return the paths of all shader files."""
        return [name for name in self._sources.names() if name.endswith(".wgsl")]

    def shipped(self, name: str) -> str:
        """Return the original text of a shader file. Raises FileNotFoundError."""
        return self._sources.shipped(name)

    def parts(self, name: str) -> frozenset[str]:
        """Return a file and everything that it includes."""
        found = {name}
        for included in _INCLUDED.findall(self._sources.read(name)):
            found |= self.parts(included)
        return frozenset(found)

    def reload(self) -> None:
        """Read all files again."""
        self._sources.forget()
        environment.cache_clear()
        self._templates = environment()
        self._pipelines.clear()

    def statistics(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return statistics of naga and of the API's compilers for the launched shaders of a file.

        Raises BackendError, with installation advice, if a tool is missing, and KernelBuildError if a tool rejects a shader.
        """
        shaders = [s for s in self.shaders if s.file == name]
        figures = translate_all(shaders, self._api, self._device_name) if shaders else {}
        return [
            {"kernel": s.kernel, "definitions": dict(s.definitions), "group": prod(s.group)}
            | {"workgroup_memory": s.workgroup_memory, **figures[s]}
            for s in shaders
        ]

    def _build(self, source: str, text: str, fix: str) -> ComputePipeline:
        """Return a pipeline whose native object is its text."""
        signature = read_signature(source, text, gaps=True)
        return ComputePipeline(text, None, text, signature)
