"""Statuses of the CUDA driver. Source: CUDA Driver API, `CUresult`."""

from __future__ import annotations

INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_DEVICE = 101
INVALID_IMAGE = 200
INVALID_CONTEXT = 201
NO_BINARY_FOR_GPU = 209
PEER_ACCESS_UNSUPPORTED = 217
INVALID_PTX = 218
INVALID_HANDLE = 400
NOT_FOUND = 500
NOT_READY = 600
ILLEGAL_ADDRESS = 700
LAUNCH_OUT_OF_RESOURCES = 701
PEER_ACCESS_ALREADY_ENABLED = 704
LAUNCH_FAILED = 719
NOT_SUPPORTED = 801

NAMES = {
    0: ("CUDA_SUCCESS", "no error"),
    INVALID_VALUE: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    OUT_OF_MEMORY: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    INVALID_DEVICE: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    INVALID_IMAGE: ("CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"),
    INVALID_CONTEXT: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    NO_BINARY_FOR_GPU: ("CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"),
    PEER_ACCESS_UNSUPPORTED: ("CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these devices"),
    INVALID_PTX: ("CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"),
    INVALID_HANDLE: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    NOT_FOUND: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    NOT_READY: ("CUDA_ERROR_NOT_READY", "device not ready"),
    ILLEGAL_ADDRESS: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    LAUNCH_OUT_OF_RESOURCES: ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"),
    PEER_ACCESS_ALREADY_ENABLED: ("CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"),
    LAUNCH_FAILED: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    NOT_SUPPORTED: ("CUDA_ERROR_NOT_SUPPORTED", "operation not supported"),
}  # fmt: skip
"""Names and texts; the driver knows no others here."""


class Refused(Exception):  # noqa: N818 - a status, not a defect
    """A call that ends with a status other than success. The text is for the reader of a failed test."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
