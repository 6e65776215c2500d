"""Fixtures of the tests of device workers."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

from polyhal.hal.core.transfers import relay, staged_chunk

from .worker_devices import SECONDS


@pytest.fixture
def workers_under_a_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set small chunks, and a timeout that prints all stacks and exits."""
    monkeypatch.setattr(relay, "CHUNK", 40)  # most values are sent in several chunks
    monkeypatch.setattr(staged_chunk, "SMALL", 24)  # chunks above and below the threshold occur
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
