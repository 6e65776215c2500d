"""Runs every benchmark in turn: `python -m benchmarks`, or `make bench`."""

from __future__ import annotations

import sys

from benchmarks import overhead, training

if __name__ == "__main__":
    failed = overhead.main()
    print()
    training.main()
    sys.exit(failed)
