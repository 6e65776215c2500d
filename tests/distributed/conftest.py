"""Jobs of several processes, started by `polyhal launch` as users start them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
Launch = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests without the optional dependencies, except in CI."""
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        if os.environ.get("CI"):
            raise
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs mpi4py: pip install 'polyhal[distributed]'"))


def run_launch(*arguments: object, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `polyhal launch` with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "polyhal", "launch", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "POLYHAL_DEVICE": "numpy", **environment},
    )


@pytest.fixture(scope="session")
def launch() -> Launch:
    """Return a function that runs `polyhal launch`."""
    return run_launch
