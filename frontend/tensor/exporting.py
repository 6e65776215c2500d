"""Members of tensors by which other libraries take their elements."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from polyhal.hal.ops.keywords import MISSING
from polyhal.numpy_protocols import NumPyProtocols


class Exports(NumPyProtocols):
    """The protocols of the Array API, NumPy, DLPack, CUDA's array interface and notebooks."""

    __slots__ = ()

    def _repr_html_(self: Any) -> str:
        """Return shape, dtype, device and abridged elements, for notebooks. Waits for the device."""
        from polyhal.html_forms import tensor_html

        return tensor_html(self)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """Return `polyhal`, the functions of the Array API. Raises ValueError for an unknown version of the standard."""
        from polyhal.array_api import namespace

        return namespace(api_version)

    def __dlpack__(
        self: Any,
        *,
        stream: Any = MISSING,
        max_version: Any = MISSING,
        dl_device: Any = MISSING,
        copy: Any = MISSING,
    ) -> Any:
        """Return a capsule of DLPack: the memory itself for a consumer that works there, else a copy in host memory.

        On a CUDA device, consumers that pass their `stream` or the device take the memory, as PyTorch, CuPy and JAX do.
        Others, such as NumPy, take a copy in host memory.
        """
        from polyhal.tensor.device_export import capsule_of

        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return capsule_of(self, {name: value for name, value in options.items() if value is not MISSING})

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        """Kind and number of the device from which `__dlpack__` shares: (2, number) for CUDA, (1, 0) for host memory."""
        from polyhal.tensor.device_export import device_of

        return device_of(self)

    @property
    def __cuda_array_interface__(self: Any) -> dict[str, Any]:
        """The memory as other CUDA libraries take it: version 3 of the interface.

        Raises AttributeError for tensors of devices other than CUDA's, and of bfloat16 and complex numbers.
        """
        from polyhal.tensor.device_export import cuda_array_interface

        return cuda_array_interface(self)
