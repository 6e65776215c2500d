"""JSON on standard output."""

from __future__ import annotations

import json
import sys
from typing import Any


def print_json(data: Any) -> None:
    """`data` as indented JSON; types that JSON lacks are written as text."""
    json.dump(data, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")
