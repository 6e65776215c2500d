"""The namespace of tensors under the Python Array API standard: `polyhal` itself, its versions, devices and dtypes."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from polyhal.hal import dtypes
from polyhal.hal.core import dispatch
from polyhal.hal.device import Device
from polyhal.hal.dtypes import DType, component, is_kind
from polyhal.hal.errors import DeviceUnavailableError, message
from polyhal.hal.ops.top_level import top_level
from polyhal.hal.system.discovery.registry import registry

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
"""Versions of the standard. Each contains the functions of the ones before."""
_MAX_DIMENSIONS = 64
"""Axes of arrays of NumPy, in which devices without a kernel compute."""
_NAMED: dict[str, DType] = {"bool" if d is dtypes.bool_ else d.name: d for d in dtypes.ALL + dtypes.COMPLEX}


def namespace(api_version: str | None) -> ModuleType:
    """Return the module with the functions of the standard. Raises ValueError for a version that it does not have."""
    if api_version is not None and api_version not in VERSIONS:
        expected = f"None or one of {', '.join(VERSIONS)}"
        raise ValueError(message("array_namespace", f"version {api_version!r}", expected=expected))
    return sys.modules["polyhal"]


@top_level
def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807  the name in the standard
    """Return an object that describes the devices and dtypes of the namespace."""
    return NamespaceInfo()


class NamespaceInfo:
    """Devices and dtypes of the namespace: `polyhal.__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """Return which optional parts of the standard exist: masks as indices, shapes that depend on values, and axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": _MAX_DIMENSIONS}

    def default_device(self) -> Device:
        """Return the device of new tensors that name none."""
        return dispatch.target_device(None)

    def devices(self) -> tuple[Device, ...]:
        """Open every device of this machine, and return them with the default first."""
        found = {self.default_device(): None}
        for candidate in registry().candidates():
            try:
                found[Device(candidate.name)] = None
            except DeviceUnavailableError:
                continue
        return tuple(found)

    def default_dtypes(self, *, device: Device | str | None = None) -> dict[str, DType]:
        """Return the dtypes of new tensors for which none is named. Devices without int64 use int32."""
        stand_ins = dispatch.target_device(device).stand_ins
        integer = stand_ins.get(dtypes.DEFAULT_INT, dtypes.DEFAULT_INT)
        return {
            "real floating": dtypes.DEFAULT_FLOAT,
            "complex floating": dtypes.complex64,
            "integral": integer,
            "indexing": integer,
        }

    def dtypes(
        self, *, device: Device | str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Return the standard's dtypes that a device stores, by name. `kind` selects the dtypes of one kind or of several.

        Raises ValueError for a kind that the standard does not name.
        """
        storage = dispatch.target_device(device).backend.capabilities.storage
        extra = (dtypes.float16, dtypes.bfloat16)  # which the standard does not have
        return {
            name: dtype
            for name, dtype in _NAMED.items()
            if component(dtype) in storage and dtype not in extra and (kind is None or is_kind(dtype, kind))
        }
