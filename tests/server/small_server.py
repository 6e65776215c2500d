"""A server with a model that repeats its prompt: texts of answers are known, and no device computes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from polyhal.generation import ConstraintError, GenerationRequest, TokenConstraint, TokenLogprob
from polyhal.server.run import http_server, listen

STOP = 0


class Letters:
    """A tokenizer whose tokens are bytes."""

    pad_id = STOP
    vocab_size = 256

    def token(self, token: int) -> str:
        return f"<0x{token:02X}>"

    def encode(self, text: str, max_len: int | None = None) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Any) -> str:
        return bytes(i for i in ids if i != STOP).decode(errors="replace")

    def to_json(self) -> str:
        return "{}"


class EchoModel:
    """A model whose prompts end with the text that its answer repeats."""

    name = "echo"
    context = 256
    device_memory = 0
    defaults: Mapping[str, float] = {"temperature": 0.0}
    tokenizer = Letters()

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None) -> list[int]:
        if messages[-1]["role"] not in ("user", "tool"):
            raise ValueError("the last message is not a question")
        names = "".join(tool["function"]["name"] for tool in tools or ())
        return self.ids(names + "".join(m["content"] or "" for m in messages))

    def constraint(self, kind: str, value: Any) -> TokenConstraint:
        raise ConstraintError(f"{kind} is not understood by an echo")

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[len(text), 0.5] for text in texts], np.float32)


def measured(token: int, count: int = 0) -> TokenLogprob:
    """Return the log-probability -token / 8, and the alternatives 97 and 98, whose probability is 0."""
    return TokenLogprob(-token / 8, ((97, -0.5), (98, float("-inf")))[:count])


class Echo:
    """The tokens of an answer: the prompt, shuffled by the seed above temperature 0, then the end."""

    def __init__(self, request: GenerationRequest) -> None:
        self.rest = list(request.prompt)
        if request.sampling.temperature:
            random.Random(request.sampling.seed).shuffle(self.rest)
        self.request = request
        self.max_tokens = request.max_tokens
        self.tokens: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.error: BaseException | None = None
        self.proposed = self.accepted = 0
        self.prompt_logprobs = [measured(i) for i in request.prompt[1:]] if request.prompt_logprobs else []
        self.finish_reason = "" if request.max_tokens else "length"

    def cancel(self) -> None:
        self.finish_reason = self.finish_reason or "cancelled"

    def advance(self) -> None:
        if not self.rest:
            self.finish_reason = "stop"
            return
        self.tokens.append(self.rest.pop(0))
        if self.request.logprobs is not None:
            self.logprobs.append(measured(self.tokens[-1], self.request.logprobs))
        if len(self.tokens) == self.max_tokens:
            self.finish_reason = "length"


class EchoGenerator:
    """Advances up to `slots` answers by a token per step. It waits while `gate` is closed; a prompt of "!" fails."""

    def __init__(self, slots: int = 4) -> None:
        self.slots = slots
        self.gate = threading.Event()
        self.gate.set()
        self.streams: list[Echo] = []
        self.largest_batch = 0

    @property
    def is_idle(self) -> bool:
        return not self.streams

    def submit(self, request: GenerationRequest) -> Echo:
        self.streams.append(Echo(request))
        return self.streams[-1]

    def step(self) -> None:
        self.gate.wait(5)
        self.streams = [s for s in self.streams if not s.finish_reason]
        running = self.streams[: self.slots]
        self.largest_batch = max(self.largest_batch, len(running))
        if any(s.rest == [ord("!")] for s in running):
            self.streams = []
            raise MemoryError("out of memory")
        for stream in running:
            stream.advance()


@contextmanager
def running(app: Any) -> Iterator[int]:
    """Serve an application in a thread, and return its port."""
    server = http_server(app)
    with listen("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
