"""Running an application on a port."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from polyhal.hal.errors import message

_GRACE = 30
"""Seconds for running answers to finish after Ctrl-C; a second Ctrl-C ends at once."""
KEEP_ALIVE = 180
"""Seconds for which an idle connection stays open. A request on a connection that the server is closing is lost, so clients
must close first: httpx does after 5 s, aiohttp after 15 s, nginx after 60 s, Go's net/http after 90 s, Caddy after 120 s."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises OSError if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]  # the address, which is named here
        problem = f"cannot listen at {host} port {port}: {reason}"
        raise OSError(message("serve", problem, fix="use another --port or --host")) from error


def http_server(app: Any) -> Any:
    """Return a server of uvicorn for an application. It is silent about clients that do not speak HTTP."""
    import uvicorn

    config = uvicorn.Config(
        app, log_level="error", lifespan="on", timeout_graceful_shutdown=_GRACE, timeout_keep_alive=KEEP_ALIVE
    )
    return uvicorn.Server(config)


def run_app(app: Any, listening: socket.socket) -> None:
    """Serve an application until Ctrl-C or SIGTERM; running answers finish first."""
    with listening, contextlib.suppress(KeyboardInterrupt):
        http_server(app).run(sockets=[listening])
