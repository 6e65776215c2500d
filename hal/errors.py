"""Everything that can go wrong, under one root, and the one message form.

A message reads `[op] what is wrong, with the actual values; what was expected; what to do (device)`.
"""

from __future__ import annotations


class PolyhalError(Exception):
    """Root of all errors that Polyhal raises on its own account."""


class DeviceUnavailableError(PolyhalError):
    """The device asked for does not exist or cannot be opened; the message lists every candidate and its reason."""


class BackendError(PolyhalError):
    """A backend failed in a way that has no more precise class."""


class OutOfMemoryError(PolyhalError, MemoryError):
    """The device cannot provide the memory asked for, even after the pool was drained."""


class KernelBuildError(BackendError):
    """A kernel did not compile; the message carries numbered source, options and, after a line `log:`, the driver's log."""

    @property
    def log(self) -> str:
        """The driver's log; empty where the message carries none."""
        return str(self).partition("\nlog:\n")[2]

    @property
    def gist(self) -> str:
        """The first line of the driver's log, or of the message where that carries none."""
        text = str(self).strip()
        log = self.log.strip() or text
        return log.splitlines()[0].strip() if log else type(self).__name__


class WrongResultError(BackendError):
    """A result is outside the error bound of its op; found by the check `reference`."""


class DeviceLostError(BackendError):
    """The device stopped answering; its tensors are gone."""


class DeviceTimeoutError(BackendError):
    """A command did not end in time; the message names it."""


class TransferError(BackendError):
    """Bytes arrived damaged on the way to or from the device."""


class SettingError(PolyhalError, ValueError):
    """An option or an environment variable has an invalid value."""


class UnsupportedOpError(PolyhalError, NotImplementedError):
    """No way to run this op with these inputs on this device."""


class UnsupportedDTypeError(PolyhalError, TypeError):
    """The device or the op has no support for this element type."""


class ShapeError(PolyhalError, ValueError):
    """Shapes, axes or parameters do not fit the op."""


class DeviceMismatchError(PolyhalError, ValueError):
    """Inputs of one op live on different devices."""


class FallbackRefusedError(PolyhalError):
    """The op would have run on the host, and the policy forbids it."""


class LinAlgError(PolyhalError, RuntimeError):
    """A matrix is singular, not positive definite or not finite where the op needs it otherwise."""


class MissingPackageError(PolyhalError, ImportError):
    """An optional package is not installed."""


class CorruptFileError(PolyhalError):
    """A file is truncated, altered or not of the expected kind."""


class IncompatibleFileError(PolyhalError):
    """A file is intact but of a schema that this version cannot read."""


class AutogradError(PolyhalError, RuntimeError):
    """A gradient cannot be computed: no graph, a freed graph, or a saved value that was changed in place."""


class CaptureError(PolyhalError, RuntimeError):
    """A captured step asked for something that only exists when it runs, or cannot be captured or replayed."""


class ExportError(PolyhalError, RuntimeError):
    """A captured step contains work that cannot run outside of this library. The message lists all of it."""


class NumberRangeError(PolyhalError, OverflowError):
    """A Python number does not fit the dtype in which it is stored."""


class NonFiniteError(PolyhalError, ArithmeticError):
    """The check `nan` met the first NaN or infinity."""


def out_of_memory_in(op: str, error: MemoryError) -> OutOfMemoryError:
    """Return the error of an allocation, of the device or by Python on the host, with the op that needed it."""
    text = str(error)
    if isinstance(error, OutOfMemoryError):
        return error if text.startswith("[") else OutOfMemoryError(f"[{op}] {text}")
    return OutOfMemoryError(
        message(op, f"no memory on the host: {text or 'an array is too large'}", fix="make fewer elements")
    )


def message(op: str | None, problem: str, *, expected: str = "", fix: str = "", device: object = None) -> str:
    """The one form of error messages: `[op] problem; expected ...; fix (device)`."""
    parts = [problem]
    if expected:
        parts.append(f"expected {expected}")
    if fix:
        parts.append(fix)
    text = "; ".join(parts)
    if op:
        text = f"[{op}] {text}"
    return f"{text} (on {device})" if device is not None else text
