"""Requests that are not as they should be: damaged bodies, headers and framing, and clients that are slow or leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from random import Random
from typing import Any

from benchmarks.reliability.fuzzing.mutation import damaged_bytes, damaged_json
from benchmarks.serving.connection import Connection, post

_BODIES: Mapping[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [{"role": "system", "content": "b"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}],
        "max_completion_tokens": 3,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "seed": 7,
        "n": 1,
        "stop": ["x"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "logit_bias": {"5": 1},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "user": "u",
    },
    "/v1/completions": {
        "prompt": ["a", "b"],
        "max_tokens": 3,
        "temperature": 0,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "repetition_penalty": 1.5,
        "stream": False,
        "n": 1,
    },
    "/v1/embeddings": {"input": ["a", "b"], "encoding_format": "float"},
}
_HEADERS = (
    "Content-Length: -1",
    "Content-Length: 99999999999999999999",
    "Content-Length: 5, 5",
    "Content-Length: x",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Content-Type: text/plain",
    "Content-Type:",
    "Content-Type: application/json; charset=utf-16",
    "Content-Encoding: gzip",
    "Authorization: Bearer \xff",
    "Host:",
    "Authorization: Basic eDp4",
    "Expect: 100-continue",
    "Connection: upgrade\r\nUpgrade: websocket",
    "Upgrade: h2c",
    "X: " + "y" * 70_000,
    " folded: x",
    "no colon",
    ": empty",
    "X\x00: y",
    "Accept: \r\n\r\n",
    "Range: bytes=0-",
)
_FIRST_LINES = (
    "GET {} HTTP/1.1",
    "PUT {} HTTP/1.1",
    "POST {} HTTP/1.0",
    "POST {} HTTP/9.9",
    "POST {}",
    "PRI * HTTP/2.0",
    "post {} http/1.1",
    "POST {}/../../etc/passwd HTTP/1.1",
    "POST {}%00%ff?x=%zz HTTP/1.1",
    "POST http://x{} HTTP/1.1",
    "\x16\x03\x01\x02\x00",
    "OPTIONS * HTTP/1.1",
    "HEAD {} HTTP/1.1",
    "CONNECT x:1 HTTP/1.1",
    "DELETE {} HTTP/1.1",
    "",
    "POST {} HTTP/1.1 x",
    "TRACE {} HTTP/1.1",
)
_PATIENCE = 0.02
"""Seconds between the parts of a slow request."""
_ENOUGH = 4096
"""Bytes of a body after which a client that sent nonsense leaves."""
_IDLE = 0.2
"""Seconds without an answer after which the client of a request that may be unfinished leaves."""


async def send_malformed(port: int, random: Random, limit: float) -> str:
    """Send a malformed request. Returns a finding, or an empty text.

    The server may answer with a status below 500, with errors in OpenAI's form, or close the connection. It may wait only if
    the request may have no end.
    """
    data, is_whole = _request(random)
    connection = await Connection.open(port)
    seconds = limit if is_whole else _IDLE
    try:
        for part in _parts(random, data):
            await connection.send(part)
            await asyncio.sleep(_PATIENCE if part is not data else 0)
        async with asyncio.timeout(seconds):
            response = await connection.response()
            start = b""
            async for part in connection.parts(response):
                start += part
                if len(start) > _ENOUGH:
                    break
        if response.status >= 500 or b'"server_error"' in start:
            return f"status {response.status} for {data[:300]!r}: {start[:300]!r}"
        if response.status >= 400 and response.headers.get("content-type") == "application/json":
            error = json.loads(start)["error"]
            if set(error) != {"message", "type", "param", "code"} or not error["message"]:
                return f"an error in another form: {start[:300]!r}"
    except ConnectionError:
        return ""
    except TimeoutError:
        return f"no answer in {limit:.0f} s to {data[:300]!r}" if is_whole else ""
    finally:
        await connection.close()
    return ""


def _request(random: Random) -> tuple[bytes, bool]:
    """Return the bytes of a request, and whether it has an end by the rules of HTTP."""
    path = random.choice(list(_BODIES))
    kind = random.randrange(6)
    if kind <= 1:
        return _framed(path, damaged_json(random, _BODIES[path])), True
    whole = post(path, _BODIES[path])
    head, _, body = whole.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    if kind == 2:
        lines.insert(random.randint(1, len(lines)), random.choice(_HEADERS))
    elif kind == 3:
        lines[0] = random.choice(_FIRST_LINES).format(path)
    elif kind == 4:
        return whole[: random.randrange(len(whole))], False
    else:
        return damaged_bytes(random, whole, [whole + whole]), False
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body, False


def _framed(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _parts(random: Random, data: bytes) -> list[bytes]:
    """Cut one request in eight into parts that arrive slowly."""
    if random.randrange(8) or len(data) < 2:
        return [data]
    cuts = sorted(random.sample(range(1, len(data)), min(3, len(data) - 1)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
