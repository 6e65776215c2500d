"""Translation of shaders by naga for each graphics API, checked by the API's tools, without a device.

wgpu translates with naga: to SPIR-V for Vulkan, checked here by spirv-val; to HLSL for DirectX 12, compiled here by dxc; and
to Metal's language, which has no compiler outside Apple's systems. Results are stored in the cache folder.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from polyhal.backends.common.described.offline_tools import CompilerRefusalError, find, kept, refusal, run
from polyhal.backends.wgpu.described.noted_shader import NotedShader
from polyhal.hal.errors import BackendError, message

TRANSLATOR = "polyhal-shader-translator"
_CARGO = f"cargo install --path {Path(__file__).parent / 'translator'} --target-dir {Path(tempfile.gettempdir()) / TRANSLATOR}"
"""Installation command. The target folder is temporary because the package's folder may be read-only."""
_PACKAGES = {
    TRANSLATOR: f"install Rust, then `{_CARGO}`",
    "spirv-val": "install SPIRV-Tools (Debian, Ubuntu: apt install spirv-tools)",
    "dxc": "install the DirectX Shader Compiler (its releases for Linux and Windows have the program dxc)",
}


@dataclass(frozen=True, slots=True)
class _Language:
    """Target language of shaders for one API."""

    name: str
    """Name in the translator's options."""
    file: str
    tool: str
    """Tool that checks the translation; empty if there is none."""
    options: tuple[str, ...]
    figure: str
    workgroup_memory: int = 1 << 30
    """Maximum bytes of workgroup memory."""


_LANGUAGES: Mapping[str, _Language] = {
    "Vulkan": _Language("spirv", "shader.spv", "spirv-val", ("--target-env", "vulkan1.1", "shader.spv"), "spirv_bytes"),
    "D3D12": _Language(
        "hlsl",
        "shader.hlsl",
        "dxc",
        ("-T", "cs_6_2", "-E", "main", "-HV", "2018", "-enable-16bit-types", "shader.hlsl"),
        "hlsl_bytes",
        32 << 10,
    ),
    "Metal": _Language("msl", "shader.metal", "", (), "msl_bytes"),
}
"""Languages by API, as named by adapters."""
APIS = tuple(_LANGUAGES)


def translate_all(shaders: Iterable[NotedShader], api: str, device: str) -> dict[NotedShader, dict[str, int]]:
    """Return the bytes of each shader's translation for an API; for every API with enough workgroup memory if `api` is unknown.

    Raises BackendError, with installation advice, if a tool is missing, and KernelBuildError if a tool rejects a shader.
    """
    languages = [_LANGUAGES[api]] if api in _LANGUAGES else list(_LANGUAGES.values())
    tools = {name: _find(name, device) for name in (TRANSLATOR, *(x.tool for x in languages)) if name}
    wanted = list(shaders)

    def figures(shader: NotedShader) -> dict[str, int]:
        takes = [x for x in languages if shader.workgroup_memory <= x.workgroup_memory]
        key = [*(part for x in takes for part in (x.figure, *x.options)), shader.text]
        made: dict[str, int] = kept("wgpu", tools.values(), key, lambda: _translate(shader, takes, tools, device))
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(wanted, pool.map(figures, wanted), strict=True))


def _find(tool: str, device: str) -> Path:
    if found := find(tool):
        return found
    raise BackendError(message(None, f"{tool} is not installed", fix=_PACKAGES[tool], device=device))


def _translate(
    shader: NotedShader, languages: Iterable[_Language], tools: Mapping[str, Path], device: str
) -> dict[str, int]:
    figures = {}
    with tempfile.TemporaryDirectory(prefix="polyhal-naga-") as name:
        folder = Path(name)
        try:
            _, said = run(tools[TRANSLATOR], ["."], folder, shader.text)
        except CompilerRefusalError as error:
            raise refusal(shader.file, "naga", device, error, ()) from None
        problems = dict(line.split(": ", 1) for line in said.splitlines())
        for language in languages:
            if language.name in problems:
                refused = CompilerRefusalError(problems[language.name])
                raise refusal(shader.file, f"naga's writer of {language.name}", device, refused, ())
            if language.tool:
                try:
                    run(tools[language.tool], language.options, folder)
                except CompilerRefusalError as error:
                    raise refusal(shader.file, language.tool, device, error, language.options) from None
            figures[language.figure] = (folder / language.file).stat().st_size
    return figures
