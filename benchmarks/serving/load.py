"""Many clients of one server, with known answers, for some time."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from benchmarks.serving.connection import Connection, Response, post
from benchmarks.serving.malformed import send_malformed
from benchmarks.serving.process import Held, ServerProcess
from benchmarks.serving.questions import Question

PATH = "/v1/completions"
_MALFORMED = 0.05
_CANCELLED = 1 / 3
_SECOND_CHOICE = 0.1
"""Share of requests with two choices."""
_DRAWN: tuple[dict[str, Any], ...] = (
    {},
    {"top_k": 40},
    {"presence_penalty": 1},
    {"logit_bias": {"5": 1}},
    {"logprobs": 2},
)
"""Options of requests whose texts are not compared."""
_SAMPLE_SECONDS = 1.0
_LONGEST_STAY = 1.0
"""Maximum of the seconds after which a client leaves without having read."""


@dataclass(slots=True)
class Tally:
    """Counts, times and findings of all clients."""

    counts: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    seconds: float = 0.0
    """Seconds until the last client had its answer."""
    first: list[float] = field(default_factory=list)
    """Seconds to the first token of each streamed answer."""
    between: list[float] = field(default_factory=list)
    """Seconds between neighbouring parts of streamed answers."""
    whole: list[float] = field(default_factory=list)
    """Seconds to the end of each answer."""
    course: list[tuple[float, Held]] = field(default_factory=list)
    """Resources of the server by elapsed seconds."""
    wrong: list[tuple[Question, str]] = field(default_factory=list)
    """Questions with texts that differ from the expected ones."""
    findings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Load:
    """Clients that ask at random until the time is over. Equal seeds ask equal questions, not at equal times."""

    server: ServerProcess
    questions: Sequence[Question]
    clients: int
    longest: int
    """Maximum number of tokens of an answer."""
    limit: float
    """Seconds without progress after which a request counts as hung."""
    sampling: float = 0.1
    """Share of requests with other options, or whose tokens are drawn: their texts are not compared."""

    async def warm_up(self) -> None:
        """Ask for every kind of step of a batch, twice: the first pass allocates tensors that later steps read."""
        connection = await Connection.open(self.server.port)
        for options in 2 * [{**more, "temperature": t} for more in _DRAWN for t in (0, 1)]:
            body = {"prompt": self.questions[0].prompt, "max_tokens": 3, **options}
            await connection.send(post(PATH, body))
            response = await connection.response()
            if response.status != 200:
                raise RuntimeError(f"status {response.status} for {body}: {await connection.body(response)!r}")
            await connection.body(response)
        await connection.close()

    async def run(self, seconds: float, seed: int) -> Tally:
        """Run all clients. Then the server must be idle."""
        tally, begin = Tally(), time.monotonic()
        end = begin + seconds
        sampler = asyncio.create_task(self._sample(tally, begin))
        await asyncio.gather(*(self._client(tally, Random(f"{seed}/{i}"), end) for i in range(self.clients)))
        tally.seconds = time.monotonic() - begin
        idle_by = time.monotonic() + self.limit
        while (held := await self.server.held()).running or held.waiting:
            if time.monotonic() > idle_by:
                tally.findings.append(f"{held.running} sequences run and {held.waiting} wait without any client")
                break
            await asyncio.sleep(0.05)
        sampler.cancel()
        return tally

    async def _sample(self, tally: Tally, begin: float) -> None:
        while True:
            tally.course.append((time.monotonic() - begin, await self.server.held()))
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def _client(self, tally: Tally, random: Random, end: float) -> None:
        connection: Connection | None = None
        while time.monotonic() < end:
            if random.random() < _MALFORMED:
                tally.counts["malformed"] += 1
                if problem := await send_malformed(self.server.port, random, self.limit):
                    tally.findings.append(problem)
                continue
            connection = connection or await Connection.open(self.server.port)
            try:
                is_open = await self._ask(connection, tally, random)
            except TimeoutError:
                is_open = False
                tally.counts["hung"] += 1
                tally.findings.append(f"no progress of a request in {self.limit:.0f} s")
            except ConnectionError as error:
                is_open = False
                tally.counts["broken"] += 1
                tally.findings.append(f"a connection broke: {error}")
            if not is_open:
                await connection.close()
                connection = None
        if connection is not None:
            await connection.close()

    async def _ask(self, connection: Connection, tally: Tally, random: Random) -> bool:
        """Ask a question, and compare the answer. Returns whether the connection is still open."""
        question, count = random.choice(self.questions), random.randint(1, self.longest)
        is_greedy, stream = random.random() >= self.sampling, random.random() < 0.5
        n = 2 if random.random() < _SECOND_CHOICE else 1
        body: dict[str, Any] = {"prompt": question.prompt, "max_tokens": count, "stream": stream, "n": n}
        body |= {"temperature": 0}
        if not is_greedy:
            body |= {"temperature": random.choice((0, 1)), "seed": random.randrange(100), **random.choice(_DRAWN)}
        data = post(PATH, body)
        leaves = random.random() < _CANCELLED
        begin = time.monotonic()
        if leaves and random.random() < 0.2:
            await connection.send(data[: random.randrange(len(data))])
            tally.counts["cancelled"] += 1
            return False
        await connection.send(data)
        if leaves and not (stream and random.random() < 0.7):
            await asyncio.sleep(random.random() * _LONGEST_STAY)
            tally.counts["cancelled"] += 1
            return False
        response = await asyncio.wait_for(connection.response(), self.limit)
        if response.status == 429:
            tally.counts["refused"] += 1
            await connection.body(response)
            await asyncio.sleep(random.random())
            return not response.closes
        if response.status != 200:
            text = (await connection.body(response))[:300]
            tally.findings.append(f"status {response.status} for {str(body)[:300]}: {text!r}")
            return not response.closes
        most = random.randint(0, count) if leaves else None
        if stream:
            choices = await self._streamed(connection, response, tally, begin, most)
        else:
            choices = await self._whole(connection, response, tally)
        if choices is None:
            tally.counts["cancelled"] += 1
            return False
        tally.counts["streamed" if stream else "whole"] += 1
        tally.whole.append(time.monotonic() - begin)
        for text, reason in choices if is_greedy else ():
            tally.counts["compared"] += 1
            expected = question.expected(count)
            if text != expected[0]:
                tally.wrong.append((question, text))
            elif reason != expected[1]:
                tally.findings.append(f"the answer ends by {reason!r}, expected {expected[1]!r}")
        if len(choices) != n:
            tally.findings.append(f"{len(choices)} choices, expected {n}")
        return not response.closes

    async def _whole(self, connection: Connection, response: Response, tally: Tally) -> list[tuple[str, str]]:
        reply = json.loads(await asyncio.wait_for(connection.body(response), self.limit))
        tally.tokens += reply["usage"]["completion_tokens"]
        return [(choice["text"], choice["finish_reason"]) for choice in reply["choices"]]

    async def _streamed(
        self, connection: Connection, response: Response, tally: Tally, begin: float, most: int | None
    ) -> list[tuple[str, str]] | None:
        """Read a stream. Returns None after `most` of its events, if that is given and there are more."""
        texts: dict[int, str] = {}
        reasons: dict[int, str] = {}
        last: dict[int, float] = {}
        found: Any = {}
        async for found in self._events(connection, response):
            if found is None:  # the end of the stream, after which the body ends, too
                continue
            if "error" in found or most == 0:
                break
            most = None if most is None else most - 1
            for choice in found["choices"]:
                index, now = choice["index"], time.monotonic()
                texts[index] = texts.get(index, "") + choice["text"]
                reasons[index] = choice["finish_reason"] or reasons.get(index, "")
                times, since = (tally.between, last[index]) if index in last else (tally.first, begin)
                times.append(now - since)
                last[index] = now
                tally.tokens += 1
        if found is not None and most == 0 and "error" not in found:
            return None
        if found is not None:
            tally.findings.append(f"a stream ends by {found}, expected OpenAI's mark")
        return [(texts[i], reasons[i]) for i in sorted(texts)]

    async def _events(self, connection: Connection, response: Response) -> AsyncIterator[Any]:
        """Yield the events of a stream, and None at the end."""
        rest, pieces = b"", connection.parts(response)
        while piece := await asyncio.wait_for(anext(pieces, b""), self.limit):
            *lines, rest = (rest + piece).split(b"\n\n")
            for line in lines:
                data = line.removeprefix(b"data: ")
                yield None if data == b"[DONE]" else json.loads(data)
