"""Malformed requests over real connections: the server refuses them, and lives."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest
from small_server import EchoGenerator, EchoModel, running

from benchmarks.serving.connection import Connection, post
from benchmarks.serving.malformed import send_malformed
from polyhal.server import ServerLimits, create_app

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

REQUESTS = 128
CLIENTS = 16


def test_malformed_requests_are_refused_and_the_server_lives() -> None:
    generator = EchoGenerator()

    async def client(port: int, number: int) -> list[str]:
        random = Random(f"malformed/{number}")
        return [await send_malformed(port, random, 10) for _ in range(REQUESTS // CLIENTS)]

    async def scenario(port: int) -> None:
        found = await asyncio.gather(*(client(port, i) for i in range(CLIENTS)))
        assert not [problem for problems in found for problem in problems if problem]
        connection = await Connection.open(port)
        questions = ["a", "bc"]
        await connection.send(b"".join(post("/v1/completions", {"prompt": q}) for q in questions))  # pipelined
        for question in questions:
            response = await connection.response()
            assert response.status == 200
            assert json.loads(await connection.body(response))["choices"][0]["text"] == question
        await connection.close()

    with running(create_app(EchoModel(), generator)) as port:
        asyncio.run(scenario(port))
    assert all(answer.finish_reason for answer in generator.streams)


def test_half_sent_requests_are_given_up() -> None:
    """The server answers a client that keeps its connection and sends no more, and is free of it."""

    async def scenario(port: int) -> None:
        connection = await Connection.open(port)
        whole = post("/v1/completions", {"prompt": "a"})
        await connection.send(whole[:-3])
        response = await connection.response()
        assert response.status == 408
        assert "bytes of the body have arrived" in json.loads(await connection.body(response))["error"]["message"]
        await connection.close()

    limits = ServerLimits(body_seconds=1)
    with running(create_app(EchoModel(), EchoGenerator(), limits=limits)) as port:
        asyncio.run(asyncio.wait_for(scenario(port), 20))
