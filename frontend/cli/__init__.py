"""The command line: `polyhal train`, `generate`, `devices`, `doctor` and more.

Every command imports its modules when it runs, so that `polyhal --help` stays fast.
"""

from __future__ import annotations


def main() -> None:
    """Run the console script."""
    from polyhal.cli.app import run

    raise SystemExit(run())


__all__ = ["main"]
