"""Every status of a driver maps to a typed error with its cause and remedy: the complete table, verbatim."""

from __future__ import annotations

from pathlib import Path

import pyopencl as cl

from polyhal.backends.opencl.error_mapping import DeviceLimits, DriverErrors
from polyhal.hal.errors import DeviceLostError

GOLDEN = Path(__file__).with_name("driver_errors.txt")
LIMITS = DeviceLimits(8 << 30, 2 << 30, 256, (256, 256, 64), 32 << 10)
ACTION = "launching softmax over (1024,) in groups of (512,)"


def statuses() -> dict[str, int]:
    """Return pyopencl's statuses and NVIDIA's own, by name."""
    named = {k: v for k, v in vars(cl.status_code).items() if k.isupper() and isinstance(v, int) and v}
    return {**dict(sorted(named.items(), key=lambda item: -item[1])), "ILLEGAL_ACCESS (NVIDIA)": -9999}


def table() -> str:
    """Return the error message of each status."""
    lines = []
    for name, code in statuses().items():
        error = DriverErrors("a GPU", LIMITS).from_status(code, ACTION)
        text = (
            str(error)
            .removeprefix(f"{ACTION} failed with ")
            .removeprefix(f"the device was lost when {ACTION} failed with ")
        )
        lines += [f"{name} {code}: {type(error).__name__}", *(f"    {part}" for part in text.split("; ")), ""]
    return "\n".join(lines)


def test_every_status_has_its_message() -> None:
    """Compare the messages with the stored table; to accept new texts, write `table()` to the file."""
    assert table() == GOLDEN.read_text(encoding="utf-8")


def test_messages_name_the_attempt_and_the_device() -> None:
    for code in statuses().values():
        text = str(DriverErrors("a GPU", LIMITS).from_status(code, ACTION))
        assert ACTION in text
        assert text.endswith("(on a GPU)")


def test_every_failure_after_a_loss_reports_the_loss() -> None:
    errors = DriverErrors("a GPU", LIMITS)
    errors.from_status(cl.status_code.OUT_OF_RESOURCES, "allocating 8 bytes")
    assert not errors.lost
    first = errors.from_status(cl.status_code.INVALID_COMMAND_QUEUE, ACTION)
    later = errors.from_status(cl.status_code.INVALID_VALUE, "allocating 8 bytes")
    assert isinstance(first, DeviceLostError)
    assert type(later) is type(first)
    assert str(later) == str(first)


def test_unknown_limits_are_left_out() -> None:
    text = str(DriverErrors("a GPU").from_status(cl.status_code.OUT_OF_RESOURCES, ACTION))
    assert "0 MiB" not in text
    assert "at most 0" not in text
