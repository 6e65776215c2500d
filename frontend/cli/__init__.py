"""The command line: `polyhal train`, `generate`, `devices`, `doctor` and more.

Every command imports its modules when it runs, so that `polyhal --help` stays fast.
"""

from __future__ import annotations


def main() -> None:
    """Run the console script."""
    try:
        from polyhal.cli.app import run
    except ModuleNotFoundError as error:
        raise SystemExit(f"error: {missing_package(error)}") from None
    raise SystemExit(run())


def missing_package(error: ModuleNotFoundError) -> str:
    """Return a sentence about a package that could not be imported, and the remedy."""
    return f"the package {error.name} is not installed; install it, or all required packages with `pip install polyhal`"


__all__ = ["main"]
