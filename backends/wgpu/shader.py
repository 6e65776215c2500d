"""Compilation of shader templates to pipelines, each once. Failures become typed errors."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any

import jinja2

from polyhal.backends.common.launching.kernel_signature import KernelSignature
from polyhal.backends.wgpu.capabilities import WGPUFeatures
from polyhal.backends.wgpu.native import compile_module
from polyhal.backends.wgpu.parameter_ring import MAX_PARAMETER_WORDS
from polyhal.backends.wgpu.signature import binding_access, parameter_bytes, read_signature, written
from polyhal.hal.core.settings import env
from polyhal.hal.core.settings.log import logger
from polyhal.hal.errors import KernelBuildError, message

_LOG = logger("kernels")

_IMMEDIATES = "var<immediate>"
_BLANK_LINES = re.compile(r"\n\s*\n+")

Definitions = Mapping[str, Any]


def _frozen(value: Any) -> Hashable:
    """Return a key of definitions, equal only to keys of definitions that render to the same text: 1 and True do not."""
    if isinstance(value, Mapping):
        return tuple((name, _frozen(x)) for name, x in value.items())
    if isinstance(value, list | tuple):
        return tuple([_frozen(x) for x in value])
    return type(value), value


class ComputePipeline:
    """A compiled kernel on one device."""

    __slots__ = ("has_immediates", "layout", "name", "native", "signature", "written")

    def __init__(self, native: Any, layout: Any, text: str, signature: KernelSignature) -> None:
        self.name = signature.kernel
        self.native = native
        self.layout = layout
        """Layout of bind group 0."""
        self.signature = signature
        self.written = written(text)
        """Bindings that the kernel writes."""
        self.has_immediates = _IMMEDIATES in text
        """True if parameters are immediates, in the command stream; otherwise they are in the ring of uniforms."""


class Pipelines(ABC):
    """The pipelines of one device, cached by their rendered text."""

    def __init__(self, features: WGPUFeatures, device_name: str) -> None:
        self._features = features
        self._device_name = device_name
        self._templates = environment()
        self._pipelines: dict[str, ComputePipeline] = {}
        self._rendered: dict[Hashable, str] = {}
        """Texts by file and definitions: rendering one costs more than all else that a launch is planned with."""

    def render(self, source: str, definitions: Definitions) -> str:
        """Return the text of shaders/wgsl/`source`.wgsl for this device."""
        key = (source, _frozen(definitions))
        text = self._rendered.get(key)
        if text is None:
            text = self._rendered[key] = self._render(source, definitions, self._features.immediates > 0)
            if 0 < self._features.immediates < parameter_bytes(read_signature(source, text)):
                text = self._rendered[key] = self._render(source, definitions, False)
        return text

    def _render(self, source: str, definitions: Definitions, immediates: bool) -> str:
        facts = {
            "F16": self._features.float16,
            "INT64": self._features.int64,
            "IMMEDIATES": immediates,
            "SUBGROUPS": self._features.subgroups,
        }
        whole = self._templates.get_template(f"{source}.wgsl").render({**facts, **definitions})
        return _BLANK_LINES.sub("\n", whole)

    def pipeline(self, source: str, definitions: Definitions) -> ComputePipeline:
        """Return the pipeline of a shader file. Raises KernelBuildError."""
        fix = "report it with the log below and the output of `polyhal doctor`"
        return self.compiled(source, self.render(source, definitions), fix)

    def compiled(self, name: str, text: str, fix: str) -> ComputePipeline:
        """Return the pipeline of a rendered shader. Raises KernelBuildError, which advises `fix`."""
        pipeline = self._pipelines.get(text)
        if pipeline is None:
            pipeline = self._pipelines[text] = self._build(name, text, fix)
        return pipeline

    @abstractmethod
    def _build(self, source: str, text: str, fix: str) -> ComputePipeline:
        """Return the pipeline of a rendered shader. Raises KernelBuildError, which advises `fix`."""


class ParameterSizeError(KernelBuildError):
    """A kernel has more bytes of parameters than the device takes with a dispatch. The text is a reason to decline an op."""


class PipelineCache(Pipelines):
    """The compiled pipelines of an open device."""

    def __init__(self, device: Any, features: WGPUFeatures, parameter_layout: Any, device_name: str) -> None:
        super().__init__(features, device_name)
        self._device = device
        self._parameter_layout = parameter_layout

    def _build(self, source: str, text: str, fix: str) -> ComputePipeline:
        import wgpu

        access, signature = binding_access(text), read_signature(source, text)
        name = signature.kernel
        needed, most = parameter_bytes(signature), 4 * MAX_PARAMETER_WORDS
        if needed > most:
            raise ParameterSizeError(f"{needed} bytes of parameters; a dispatch takes {most}")
        immediates = _IMMEDIATES in text
        try:
            module = compile_module(self._device, text, name, checked=env.debug())
            layout = self._device.create_bind_group_layout(
                label=name,
                entries=[
                    {
                        "binding": number,
                        "visibility": wgpu.ShaderStage.COMPUTE,
                        "buffer": {"type": "read-only-storage" if mode == "read" else "storage"},
                    }
                    for number, mode in access.items()
                ],
            )
            groups = [layout] if immediates else [layout, self._parameter_layout]
            sizes = {"immediate_size": needed} if immediates else {}
            start = time.perf_counter()
            native = self._device.create_compute_pipeline(
                label=name,
                layout=self._device.create_pipeline_layout(label=name, bind_group_layouts=groups, **sizes),
                compute={"module": module, "entry_point": "main"},
            )
        except (wgpu.GPUError, RuntimeError) as error:
            raise build_error(name, text, _gist(str(error)), fix, self._device_name) from error
        milliseconds = 1e3 * (time.perf_counter() - start)
        _LOG.info("compiled %s in %.1f ms on %s", name, milliseconds, self._device_name)
        return ComputePipeline(native, layout, text, signature)


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Return the environment of the templates in shaders/wgsl, common to all devices.

    An undefined name without a default is an error.
    """
    return jinja2.Environment(
        loader=jinja2.PackageLoader("polyhal.shaders.wgsl", ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # this is not HTML
    )


def build_error(name: str, text: str, log: str, fix: str, device: str) -> KernelBuildError:
    """Return the error of a kernel whose source `text` does not compile."""
    problem = message(None, f"the kernel {name!r} does not compile", fix=fix, device=device)
    return KernelBuildError(f"{problem}\nsource:\n{numbered(text)}\nlog:\n{log}")


def _gist(log: str) -> str:
    """Return a log without the leading lines that only repeat the call."""
    return log.partition("label = ")[2].partition("\n")[2].strip() or log


def numbered(text: str) -> str:
    """Return source with line numbers, counted like compilers."""
    return "\n".join(f"{i:4} | {line}" for i, line in enumerate(text.split("\n"), 1))
