"""A connection to an HTTP server, byte by byte, so that a client can be slow, vanish or send nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

_LINE = 1 << 16


@dataclass(frozen=True, slots=True)
class Response:
    """Status and headers of a response, whose body is still to be read."""

    status: int
    headers: Mapping[str, str]

    @property
    def closes(self) -> bool:
        """True if the server closes the connection after the body."""
        return self.headers.get("connection", "").lower() == "close"


class Connection:
    """A connection, which is kept open for further requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to a port of this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=_LINE))

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def response(self) -> Response:
        """Read the head of a response. Raises ConnectionError if the server closes the connection instead."""
        while True:
            first = await self._line()
            status = int(first.split()[1])
            headers = {}
            while line := await self._line():
                name, _, value = line.partition(":")
                headers[name.strip().lower()] = value.strip()
            if status != 100:  # "Continue"
                return Response(status, headers)

    async def parts(self, response: Response) -> AsyncIterator[bytes]:
        """Yield the parts of a body as they arrive."""
        if response.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int(await self._line(), 16):
                yield await self._exactly(size)
                await self._exactly(2)
            await self._line()
        elif size := int(response.headers.get("content-length", "0")):
            yield await self._exactly(size)

    async def body(self, response: Response) -> bytes:
        """Read a whole body."""
        return b"".join([part async for part in self.parts(response)])

    async def close(self) -> None:
        """Close the connection, whatever is under way."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _line(self) -> str:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the server closed the connection")
        return line.decode("latin-1").rstrip("\r\n")

    async def _exactly(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the server closed the connection within a body") from error


def post(path: str, body: object, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a request with a JSON body."""
    content = json.dumps(body).encode()
    fields = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(content))}
    lines = [f"POST {path} HTTP/1.1", *(f"{k}: {v}" for k, v in {**fields, **(headers or {})}.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


async def get(port: int, path: str) -> tuple[int, bytes]:
    """Return status and body of a path, by a connection of its own."""
    connection = await Connection.open(port)
    try:
        await connection.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        response = await connection.response()
        return response.status, await connection.body(response)
    finally:
        await connection.close()
