"""Anomaly mode: PyTorch's name of the check `nan`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def detect_anomaly(check_nan: bool = True) -> AbstractContextManager[None]:
    """Check the result of every op inside the block, forward and backward: `polyhal.check("nan")`.

    Raises NonFiniteError that names the first op with a NaN or an infinity in its result, and the user's line; CaptureError
    while a step is recorded, which has no results to check. Without `check_nan` nothing is checked.
    """
    from polyhal.hal.system.checks.modes import checking

    return checking("detect_anomaly", ["nan"]) if check_nan else nullcontext()
