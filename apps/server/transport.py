"""Bodies, keys and connections: everything between HTTP and the endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from polyhal.server.errors import RequestError

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class DisconnectedError(Exception):
    """The client closed its connection."""


def check_key(authorization: str, key: str | None) -> None:
    """Raise RequestError if a request does not have the server's key."""
    if key is None:
        return
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), key.encode()):
        problem = "the API key is wrong" if authorization else "no API key"
        fix, code = "send the header Authorization: Bearer KEY", "invalid_api_key"
        raise RequestError(problem, expected="the server's key", fix=fix, status=401, code=code)


async def read_body(headers: Any, receive: Receive, limit: int, seconds: float) -> bytes:
    """Read a request's body. Raises RequestError if it is too long, too slow or not declared as JSON, and DisconnectedError.

    The declaration protects a server without a key: a page in a browser cannot send JSON to another site unasked.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        fix = "send the header Content-Type: application/json"
        raise RequestError(f"Content-Type is {kind or 'missing'}", expected="application/json", fix=fix, status=415)
    stated = headers.get("content-length", "")
    parts: list[bytes] = []
    size = int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 20 else 0
    more = size <= limit
    try:
        async with asyncio.timeout(seconds):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise DisconnectedError
                parts.append(message.get("body", b""))
                more = message.get("more_body", False) and sum(map(len, parts)) <= limit
    except TimeoutError as error:
        problem = f"after {seconds:g} s only {sum(map(len, parts))} bytes of the body have arrived"
        raise RequestError(problem, fix="send the whole body at once", status=408) from error
    size = max(size, sum(map(len, parts)))
    if size > limit:
        fix = "send less, or start the server with a larger --max-body"
        raise RequestError(f"the body has {size} bytes or more", expected=f"at most {limit}", fix=fix, status=413)
    return b"".join(parts)


async def unless_disconnected(receive: Receive, work: Awaitable[None]) -> None:
    """Wait for `work`, which is cancelled when the client closes its connection. Then raises DisconnectedError."""

    async def disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(disconnect())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise DisconnectedError
        await working
    finally:
        for task in (working, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def send_json(send: Send, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
    """Send a whole response."""
    content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    await send_bytes(send, content, "application/json", status, headers)


async def send_bytes(
    send: Send, content: bytes, kind: str, status: int = 200, headers: dict[str, str] | None = None
) -> None:
    """Send a whole response with bytes of a media type."""
    fields = {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(fields)})
    await send({"type": "http.response.body", "body": content})


async def send_events(send: Send, events: AsyncIterator[Any]) -> None:
    """Send objects as server-sent events, and OpenAI's mark of the end. An error after the start is an event, too."""
    fields = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    await send({"type": "http.response.start", "status": 200, "headers": _encoded(fields)})
    try:
        async for event in events:
            await send({"type": "http.response.body", "body": _event(event), "more_body": True})
            await asyncio.sleep(0)  # notices a client that has left, though the next event may be ready
    except RequestError as error:
        await send({"type": "http.response.body", "body": _event(error.body), "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


def _encoded(fields: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in fields.items()]
