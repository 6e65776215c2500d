"""The server's endpoints, as a Starlette application."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from polyhal.generation import ConstraintError
from polyhal.server.answers import Answer, as_request_error
from polyhal.server.embeddings import embedding_reply, embedding_texts
from polyhal.server.errors import RequestError
from polyhal.server.fields import Fields, parse_body
from polyhal.server.interfaces import ServedModel, TextGenerator
from polyhal.server.limits import ServerLimits
from polyhal.server.metrics import ServerMetrics
from polyhal.server.options import IGNORED, SHARED, Options, read_options
from polyhal.server.prompts import chat_prompt, check_length, plain_prompts
from polyhal.server.replies import Reply
from polyhal.server.transport import (
    DisconnectedError,
    Receive,
    Send,
    check_key,
    read_body,
    send_bytes,
    send_events,
    send_json,
    unless_disconnected,
)
from polyhal.server.worker import ModelThread
from polyhal.text import TokenTexts

_log = logging.getLogger(__name__)
_PLAIN_TOKENS = 16
"""Default of `max_tokens` for plain completions in OpenAI's interface."""
Endpoint = Callable[[Any, Send], Awaitable[None]]


def create_app(
    model: ServedModel, generator: TextGenerator, *, api_key: str | None = None, limits: ServerLimits | None = None
) -> Any:
    """Return an ASGI application that serves a model by OpenAI's HTTP interface. Its lifespan runs the model's thread."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    server = _Server(model, generator, api_key, limits or ServerLimits())
    routes = [
        Route(path, server.guarded(path, endpoint, needs_key), methods=[method])
        for path, method, endpoint, needs_key in (
            ("/health", "GET", server.health, False),
            ("/metrics", "GET", server.metrics, True),
            ("/v1/models", "GET", server.models, True),
            ("/v1/models/{name:path}", "GET", server.models, True),
            ("/v1/chat/completions", "POST", server.chat, True),
            ("/v1/completions", "POST", server.completions, True),
            ("/v1/embeddings", "POST", server.embeddings, True),
        )
    ]
    handlers = {404: server.refuse_path, 405: server.refuse_path}
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=server.lifespan)


class _Server:
    """State and endpoints of an application."""

    def __init__(self, model: ServedModel, generator: TextGenerator, api_key: str | None, limits: ServerLimits) -> None:
        self._model, self._key, self._limits = model, api_key, limits
        self._thread = ModelThread(generator, limits.waiting)
        self._metrics = ServerMetrics()
        self._texts = TokenTexts(model.tokenizer)
        self._created = int(time.time())
        longest = model.context - 1
        self._prompt_limit = longest if limits.prompt is None else min(limits.prompt, longest)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Run the model's thread."""
        self._thread.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._thread.stop)

    def guarded(self, path: str, endpoint: Endpoint, needs_key: bool) -> Any:
        """Return an endpoint of Starlette that checks the key, and sends errors in OpenAI's form."""

        async def respond(request: Any) -> Any:
            async def run(scope: Any, receive: Receive, send: Send) -> None:
                status = 0

                async def counted_send(message: dict[str, Any]) -> None:
                    nonlocal status
                    status = message.get("status", status)
                    await send(message)

                try:
                    if needs_key:
                        check_key(request.headers.get("authorization", ""), self._key)
                    await endpoint(request, counted_send)
                except DisconnectedError:
                    status = 499  # nginx' number for a client that vanished
                except Exception as error:
                    if not isinstance(error, RequestError):
                        _log.exception("%s failed", path)
                    if not status:
                        refused = as_request_error(error)
                        await send_json(counted_send, refused.body, refused.status, refused.headers)
                finally:
                    self._metrics.responses[path, status] += 1

            return run

        return respond

    async def refuse_path(self, request: Any, error: Any) -> Any:
        """Answer a request for an unknown path, or with a wrong method."""
        problem = f"{request.method} {request.url.path[:200]} does not exist"
        fix = "use GET /health, /metrics, /v1/models or POST /v1/chat/completions, /v1/completions, /v1/embeddings"
        refused = RequestError(problem, fix=fix, status=error.status_code)

        async def run(scope: Any, receive: Receive, send: Send) -> None:
            await send_json(send, refused.body, refused.status, dict(error.headers or {}))

        return run

    async def health(self, request: Any, send: Send) -> None:
        """Answer whether the model's thread runs."""
        alive = self._thread.is_alive
        await send_json(send, {"status": "ok" if alive else "stopping"}, 200 if alive else 503)

    async def metrics(self, request: Any, send: Send) -> None:
        """Answer with counters for Prometheus."""
        text = self._metrics.text(*self._thread.load, self._model.device_memory)
        await send_bytes(send, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def models(self, request: Any, send: Send) -> None:
        """Answer with the list of models, which is one, or with a model."""
        model = {"id": self._model.name, "object": "model", "created": self._created, "owned_by": "polyhal"}
        name = request.path_params.get("name")
        if name is not None and name != self._model.name:
            problem = f"model {name[:200]!r} is not served here"
            raise RequestError(problem, expected=repr(self._model.name), status=404, code="model_not_found")
        await send_json(send, model if name is not None else {"object": "list", "data": [model]})

    async def chat(self, request: Any, send: Send) -> None:
        """Answer a conversation."""
        body = await self._body(request)
        fields = Fields(
            body, (*SHARED, "messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice"), IGNORED
        )
        options = read_options(fields, self._model, self._limits.choices, None)
        ids = await asyncio.to_thread(chat_prompt, fields, self._model)
        check_length(ids, self._prompt_limit, "messages")
        await self._answer(request, send, [ids], options, True)

    async def completions(self, request: Any, send: Send) -> None:
        """Continue texts."""
        body = await self._body(request)
        fields = Fields(body, (*SHARED, "prompt", "echo"), IGNORED)
        options = read_options(fields, self._model, self._limits.choices, _PLAIN_TOKENS)
        prompts = await asyncio.to_thread(plain_prompts, fields, self._model)
        for ids in prompts:
            check_length(ids, self._prompt_limit, "prompt")
        if len(prompts) * options.n > self._limits.choices:
            problem = f"{len(prompts)} prompts with n {options.n}"
            expected = f"at most {self._limits.choices} choices"
            raise RequestError(problem, expected=expected, fix="send several requests", param="prompt")
        await self._answer(request, send, prompts, options, False)

    async def embeddings(self, request: Any, send: Send) -> None:
        """Answer with vectors of texts."""
        body = await self._body(request)
        model, limit = self._model, self._prompt_limit
        texts, tokens, as_base64 = await asyncio.to_thread(embedding_texts, body, model, limit)

        async def work() -> None:
            vectors = await self._thread.call(lambda: model.embed(texts))
            await send_json(send, embedding_reply(model.name, vectors, tokens, as_base64))

        self._metrics.prompt_tokens += tokens
        await unless_disconnected(request.receive, work())

    async def _body(self, request: Any) -> dict[str, Any]:
        limits = self._limits
        return parse_body(await read_body(request.headers, request.receive, limits.body, limits.body_seconds))

    async def _answer(
        self, request: Any, send: Send, prompts: list[list[int]], options: Options, is_chat: bool
    ) -> None:
        """Generate the choices of a request and send them, unless the client vanishes."""
        reply = Reply(self._model.name, is_chat, self._texts)
        constraint = None
        if options.constraint is not None:
            try:
                constraint = await asyncio.to_thread(self._model.constraint, *options.constraint)
            except ConstraintError as error:
                raise RequestError(str(error), code="invalid_grammar") from error
        answer = Answer(self._thread, self._model, self._metrics, prompts, options, constraint, not is_chat)

        async def whole() -> None:
            pieces = [piece async for piece in answer.pieces()]
            await send_json(send, reply.whole(answer, pieces))

        async def events() -> AsyncIterator[Any]:
            for part in reply.first(answer):
                yield part
            async for piece in answer.pieces():
                yield reply.part(piece)
            if options.include_usage:
                yield reply.last(answer)

        try:
            work = send_events(send, events()) if options.stream else whole()
            await unless_disconnected(request.receive, work)
        finally:
            answer.close()
