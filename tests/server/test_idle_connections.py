"""Connections that clients keep open between requests."""

from __future__ import annotations

import asyncio

import pytest
from small_server import EchoGenerator, EchoModel, running

from benchmarks.serving.connection import Connection, post
from polyhal.server import create_app
from polyhal.server.run import KEEP_ALIVE

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

CADDY_SECONDS = 120
"""Default keep-alive of Caddy's reverse proxy (transport http, keepalive), the longest of the proxies that the pages name."""


class ShiftedClock(asyncio.SelectorEventLoop):
    """An event loop whose clock can be set forward."""

    shift = 0.0

    def time(self) -> float:
        return super().time() + self.shift


def test_the_server_keeps_connections_for_longer_than_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[ShiftedClock] = []

    def loop() -> ShiftedClock:
        loops.append(ShiftedClock())
        return loops[-1]

    monkeypatch.setattr("uvicorn.config.Config.get_loop_factory", lambda config: loop)

    async def answered(connection: Connection) -> bool:
        await connection.send(post("/v1/completions", {"prompt": "a"}))
        try:
            response = await connection.response()
        except ConnectionError:
            return False
        await connection.body(response)
        return response.status == 200

    async def server_idles() -> None:
        """Wait until the server has ended the steps that were due, such as its timers of connections."""
        for _ in range(3):
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loops[0]))

    async def after(port: int, seconds: float) -> bool:
        connection = await Connection.open(port)
        assert await answered(connection)
        await server_idles()
        loops[0].shift += seconds
        await server_idles()
        kept = await answered(connection)
        await connection.close()
        return kept

    async def scenario(port: int) -> None:
        assert await after(port, CADDY_SECONDS + 1)
        assert not await after(port, KEEP_ALIVE + 1)

    with running(create_app(EchoModel(), EchoGenerator())) as port:
        asyncio.run(scenario(port))
