"""Described devices of wgpu."""

from __future__ import annotations

from polyhal.backends.common.described.backend import DescribedBackend
from polyhal.backends.wgpu import capabilities as probed
from polyhal.backends.wgpu import lowering
from polyhal.backends.wgpu.described.description import AdapterDescription
from polyhal.backends.wgpu.described.runtime import DescribedAdapterRuntime
from polyhal.hal.errors import message


class WGPUDescribedBackend(DescribedBackend):
    """A described device of wgpu."""

    def __init__(self, described: AdapterDescription) -> None:
        adapter, info = described.adapter, described.info
        limits = probed.required_limits(adapter)
        features = probed.features(adapter, info.type, limits, {})
        self.description = described
        self.runtime = DescribedAdapterRuntime(info, features, probed.capabilities(adapter, features, limits), adapter)
        self.kernels = self.runtime.pipelines
        super().__init__(self.runtime, lowering.BUILDERS, lowering.table())

    @property
    def features(self) -> probed.WGPUFeatures:
        """Device properties that select shaders and launches."""
        return self.runtime.features


def create(described: AdapterDescription, option: str) -> WGPUDescribedBackend:
    """Open a described device. Raises ValueError for an option."""
    if option:
        raise ValueError(
            message(None, f"unknown option {option!r} of a described device", expected="none through wgpu")
        )
    return WGPUDescribedBackend(described)
