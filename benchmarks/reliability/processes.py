"""Processes that campaigns start: they import this checkout, from any folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The root of the checkout."""


def environment(**settings: str) -> dict[str, str]:
    """Return the environment of a process that finds the modules that this one finds, with further variables."""
    path = os.pathsep.join([str(ROOT), *(p for p in sys.path if p)])
    return os.environ | {"PYTHONPATH": path} | settings
