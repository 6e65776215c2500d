"""The thread that runs the model: continuous batching of the requests of all clients."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, TypeVar

from polyhal.generation import GenerationRequest, TokenLogprob
from polyhal.server.errors import RequestError
from polyhal.server.interfaces import GeneratedTokens, TextGenerator

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TokenDelivery:
    """New tokens of a sequence, and how it ended, if it did."""

    index: int
    tokens: list[int]
    finish_reason: str = ""
    error: BaseException | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    """Log-probabilities of the new tokens, if they are requested."""
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    """Log-probabilities of all tokens of the prompt but the first one, if they are requested."""
    proposed: int = 0
    """Number of tokens of the sequence that speculative decoding proposed so far."""
    accepted: int = 0
    """Number of proposed tokens in the text."""


@dataclass(eq=False, slots=True)
class Job:
    """A sequence that is to be generated. Its deliveries go to a queue of an event loop."""

    index: int
    request: GenerationRequest
    queue: asyncio.Queue[TokenDelivery]
    loop: asyncio.AbstractEventLoop
    cancelled: bool = False
    stream: GeneratedTokens | None = None
    read: int = 0
    """Number of tokens that were delivered."""

    def deliver(self, delivery: TokenDelivery) -> None:
        """Send a delivery from the model's thread."""
        _call(self.loop, self.queue.put_nowait, delivery)


class ModelThread:
    """Runs a generator, and other functions of its model, in one thread."""

    def __init__(self, generator: TextGenerator, waiting: int) -> None:
        self._generator = generator
        self._capacity = generator.slots + waiting
        self._new: deque[Job] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._active: list[Job] = []
        self._count = 0
        self._changed = Condition()
        self._stopping = False
        self._thread = Thread(target=self._run, name="polyhal-server-model", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its current step. Sequences that are not finished fail."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_alive(self) -> bool:
        """True if the thread accepts requests."""
        return self._thread.is_alive() and not self._stopping

    @property
    def load(self) -> tuple[int, int]:
        """Number of sequences that run, and that wait."""
        running = min(self._count, self._generator.slots)
        return running, self._count - running

    def submit(self, jobs: list[Job], retry_after: int) -> None:
        """Queue the jobs of a request, all or none. Raises RequestError if too many wait."""
        with self._changed:
            self._check_alive()
            if self._count + len(jobs) > self._capacity:
                slots = self._generator.slots
                problem = f"{self._count} sequences run or wait, and the request has {len(jobs)}"
                expected = f"at most {self._capacity}: {slots} in the batch and {self._capacity - slots} that wait"
                fix = f"try again in {retry_after} s, or start the server with a larger --queue"
                code = "queue_full"
                raise RequestError(problem, expected=expected, fix=fix, status=429, code=code, retry_after=retry_after)
            self._new.extend(jobs)
            self._count += len(jobs)
            self._changed.notify()

    async def call(self, function: Callable[[], T]) -> T:
        """Run a function in the thread between two steps, and return its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            """Run the function in the model's thread."""
            if future.cancelled():
                return
            try:
                result = function()
            except Exception as error:
                _call(loop, _set, future, None, error)
            else:
                _call(loop, _set, future, result, None)

        with self._changed:
            self._check_alive()
            self._calls.append(run)
            self._changed.notify()
        return await future

    def cancel(self, job: Job) -> None:
        """End a sequence whose client vanished, or that reached a stop string."""
        with self._changed:
            job.cancelled = True
            self._changed.notify()

    def _check_alive(self) -> None:
        if not self.is_alive:
            raise RequestError("the server is stopping", fix="try again later", status=503, retry_after=5)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._stopping or self._new or self._calls or self._active):
                    self._changed.wait()
                if self._stopping:
                    break
                new, self._new = list(self._new), deque()
                call = self._calls.popleft() if self._calls else None
            if call is not None:
                call()
            for job in new:
                self._submit(job)
            self._release_cancelled()
            if self._active or not self._generator.is_idle:
                self._step()
        error = RequestError("the server stopped", status=503)
        for job in (*self._active, *self._new):
            job.deliver(TokenDelivery(job.index, [], "error", error))
        for call in self._calls:
            call()

    def _submit(self, job: Job) -> None:
        try:
            if not job.cancelled:
                job.stream = self._generator.submit(job.request)
        except Exception as error:
            job.deliver(TokenDelivery(job.index, [], "error", error))
            self._leave([job])
        else:
            self._active.append(job)

    def _release_cancelled(self) -> None:
        cancelled = [job for job in self._active if job.cancelled]
        for job in cancelled:
            if job.stream is not None:
                job.stream.cancel()
        self._active = [job for job in self._active if not job.cancelled]
        self._leave(cancelled)

    def _step(self) -> None:
        failure: Exception | None = None
        try:
            self._generator.step()
        except Exception as error:
            failure = error
        finished = []
        for job in self._active:
            assert job.stream is not None
            stream, first = job.stream, job.read
            tokens = stream.tokens[first:]
            job.read += len(tokens)
            reason = "error" if failure is not None else stream.finish_reason
            if tokens or reason:
                measured = stream.logprobs[first : job.read], stream.prompt_logprobs, stream.proposed, stream.accepted
                job.deliver(TokenDelivery(job.index, tokens, reason, failure or stream.error, *measured))
            if reason:
                finished.append(job)
        self._active = [job for job in self._active if job not in finished]
        self._leave(finished)

    def _leave(self, jobs: list[Job]) -> None:
        with self._changed:
            self._count -= len(jobs)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *arguments: Any) -> None:
    """Run a function in an event loop; no-op if it is closed, since its clients are gone."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(function, *arguments)


def _set(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
