"""Errors of requests, in the form of OpenAI's interface."""

from __future__ import annotations

from typing import Any

from polyhal.hal.errors import message

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class RequestError(Exception):
    """A request that is refused or failed, with its HTTP status.

    `param` is the field of the body, `code` a word for programs, `retry_after` the seconds until the client should try again.
    """

    def __init__(
        self,
        problem: str,
        *,
        expected: str = "",
        fix: str = "",
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message(None, problem, expected=expected, fix=fix))
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after

    @property
    def body(self) -> dict[str, Any]:
        """The body of the response."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return {**headers, "WWW-Authenticate": "Bearer"} if self.status == 401 else headers
