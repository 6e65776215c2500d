"""What tests of workers run under."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

from polyhal.hal.transfers import relay, staged_chunk

from .worker_devices import SECONDS


@pytest.fixture
def workers_under_a_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small chunks, and a limit of time after which all stacks are shown."""
    monkeypatch.setattr(relay, "CHUNK", 40)  # most values are sent in several chunks
    monkeypatch.setattr(staged_chunk, "SMALL", 24)  # and in both ways
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
