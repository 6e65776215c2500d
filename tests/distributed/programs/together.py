"""Runs several programs one after the other in the processes of one job, because starting processes takes longest."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

for name in sys.argv[1:]:
    runpy.run_path(str(Path(__file__).with_name(name)))
