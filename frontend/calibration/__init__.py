"""Calibration: short micro-benchmarks of a real device, from which the simulator makes a profile of it."""

from __future__ import annotations

from polyhal.calibration.calibrate import measure, profile_text

__all__ = ["measure", "profile_text"]
