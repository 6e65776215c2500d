"""Described devices of wgpu."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from polyhal.backends.common.described.backend import DescribedBackend
from polyhal.backends.wgpu import capabilities as probed
from polyhal.backends.wgpu import lowering
from polyhal.backends.wgpu.described.description import AdapterDescription
from polyhal.backends.wgpu.described.runtime import DescribedAdapterRuntime
from polyhal.hal.errors import message

NO_QUIRKS: Mapping[str, bool | int] = MappingProxyType({})
_OPTIONAL = {"f16": "shader-f16"}
"""Features that the option `record` may add."""


class WGPUDescribedBackend(DescribedBackend):
    """A described device of wgpu."""

    _runtime_class = DescribedAdapterRuntime

    def __init__(self, described: AdapterDescription, quirks: Mapping[str, bool | int] = NO_QUIRKS) -> None:
        adapter, info = described.adapter, described.info
        limits = probed.required_limits(adapter)
        features = probed.features(adapter, info.type, limits, quirks)
        self.description = described
        self.runtime = self._runtime_class(info, features, probed.capabilities(adapter, features, limits), adapter)
        self.kernels = self.runtime.pipelines
        super().__init__(self.runtime, lowering.BUILDERS, lowering.table())

    @property
    def features(self) -> probed.WGPUFeatures:
        """Device properties that select shaders and launches."""
        return self.runtime.features


def create(described: AdapterDescription, option: str) -> WGPUDescribedBackend:
    """Open a described device. Raises ValueError for an unknown option.

    The option `record` opens a device that records steps for export; `record,f16` one with 16-bit floats in shaders.
    """
    if not option:
        return WGPUDescribedBackend(described)
    record, *features = option.split(",")
    if record != "record" or any(f not in _OPTIONAL for f in features):
        expected = f"none, or record, with {' or '.join(_OPTIONAL)} after a comma"
        raise ValueError(message(None, f"unknown option {option!r} of a described device", expected=expected))
    from polyhal.backends.wgpu.described.recording import RecordingDescribedBackend

    return RecordingDescribedBackend(described.having(_OPTIONAL[f] for f in features), option)
