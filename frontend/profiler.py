"""Measurements of programs and of captured steps: ops, launches, and the activity of devices."""

from polyhal.hal.diagnostics.profiler import profile
from polyhal.hal.scheduler.activity import StepActivity
from polyhal.hal.scheduler.profile import StepProfile

__all__ = ["StepActivity", "StepProfile", "profile"]
