"""Supported versions of PyTorch."""

from __future__ import annotations

OLDEST = (2, 10)


def require(version: str) -> None:
    """Raise ImportError for a version of PyTorch that is too old."""
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(f"polyhal.torch needs PyTorch {oldest} or later and found {version}; pip install -U torch")
