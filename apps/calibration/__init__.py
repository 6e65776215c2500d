"""Calibration: short micro-benchmarks of a real device, to which the simulator fits a profile."""

from __future__ import annotations

from polyhal.calibration.calibrate import measure, profile_text

__all__ = ["measure", "profile_text"]
