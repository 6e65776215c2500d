"""Answers to a client that leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from polyhal.server.transport import DisconnectedError, send_events, unless_disconnected


def test_a_stream_of_ready_events_ends_when_the_client_leaves() -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        while len(sent) < 3:
            await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(part: Any) -> None:
        sent.append(part)

    async def events() -> AsyncIterator[int]:
        for i in range(1000):
            yield i

    with pytest.raises(DisconnectedError):
        asyncio.run(unless_disconnected(receive, send_events(send, events())))
    assert len(sent) < 10
