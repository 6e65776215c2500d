"""The HTTP interface, with a model whose answers are known."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from small_server import EchoGenerator, EchoModel

from polyhal.server import ServerLimits, create_app

pytest.importorskip("starlette")
pytest.importorskip("httpx")
from starlette.testclient import TestClient

CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(EchoModel(), EchoGenerator())) as client:
        yield client


def ask(text: str, **fields: Any) -> dict[str, Any]:
    """Return the body of a question."""
    return {"model": "echo", "messages": [{"role": "user", "content": text}], **fields}


def events(text: str) -> list[dict[str, Any]]:
    """Return the events of a stream, which must end with OpenAI's mark."""
    lines = [line for line in text.split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def error_of(response: Any, status: int) -> dict[str, Any]:
    """Return the error of a response, which must have OpenAI's form."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


def test_chat(client: TestClient) -> None:
    reply = client.post(CHAT, json=ask("grün €")).json()
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": "grün €"}
    assert choice["finish_reason"] == "stop"
    assert reply["usage"] == {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    assert (reply["object"], reply["model"]) == ("chat.completion", "echo")
    tools = [{"type": "function", "function": {"name": "sum", "parameters": {}}}]
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for choice_of_tool, expected in (("auto", "sumab"), ("none", "ab")):
        body = {"messages": [{"role": "user", "content": parts}], "tools": tools, "tool_choice": choice_of_tool}
        assert client.post(CHAT, json=body).json()["choices"][0]["message"]["content"] == expected


def test_streams_equal_whole_answers(client: TestClient) -> None:
    body = ask("grün €, one STOP two", stop=["STOP"], stream=True, stream_options={"include_usage": True}, n=2)
    found = events(client.post(CHAT, json=body).text)
    assert found[-1]["usage"] == {"prompt_tokens": 23, "completion_tokens": 38, "total_tokens": 61}
    assert found[-1]["choices"] == []
    for index in range(2):
        parts = [c for event in found for c in event["choices"] if c["index"] == index]
        assert parts[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(p["delta"].get("content", "") for p in parts) == "grün €, one "
        assert [p["finish_reason"] for p in parts if p["finish_reason"]] == ["stop"]
    whole = client.post(CHAT, json={**body, "stream": False, "stream_options": None}).json()
    assert [c["message"]["content"] for c in whole["choices"]] == ["grün €, one "] * 2


def test_plain_completions(client: TestClient) -> None:
    reply = client.post(PLAIN, json={"prompt": ["abc", "de"], "n": 2, "max_tokens": 2}).json()
    found = [(c["index"], c["text"], c["finish_reason"]) for c in reply["choices"]]
    assert found == [(0, "ab", "length"), (1, "ab", "length"), (2, "de", "length"), (3, "de", "length")]
    assert reply["usage"] == {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}
    assert reply["object"] == "text_completion"
    (event, *_) = events(client.post(PLAIN, json={"prompt": [97], "stream": True}).text)
    assert event["choices"][0]["text"] == "a"
    seeded = {"prompt": "abcdefgh", "temperature": 1, "seed": 3}
    texts = [client.post(PLAIN, json=seeded).json()["choices"][0]["text"] for _ in range(2)]
    assert texts[0] == texts[1] != "abcdefgh"
    nothing = client.post(PLAIN, json={"prompt": "a", "max_tokens": 0}).json()["choices"][0]
    assert (nothing["text"], nothing["finish_reason"]) == ("", "length")


def test_log_probabilities(client: TestClient) -> None:
    """In both forms, whole and streamed. Tokens of a stop string are left out, and parts of characters are bytes."""
    body = ask("é STOP", stop=["STOP"], logprobs=True, top_logprobs=2)
    whole = client.post(CHAT, json=body).json()["choices"][0]["logprobs"]["content"]
    parts = [c for event in events(client.post(CHAT, json={**body, "stream": True}).text) for c in event["choices"]]
    assert [row for part in parts if part["logprobs"] for row in part["logprobs"]["content"]] == whole
    assert [row["token"] for row in whole] == ["bytes:\\xc3", "bytes:\\xa9", " "]
    best = [{"token": "a", "logprob": -0.5, "bytes": [97]}, {"token": "b", "logprob": -9999.0, "bytes": [98]}]
    assert whole[2] == {"token": " ", "logprob": -4.0, "bytes": [32], "top_logprobs": best}
    echo = {"prompt": "de", "max_tokens": 1, "logprobs": 1, "echo": True}
    choice = client.post(PLAIN, json=echo).json()["choices"][0]
    assert choice["text"] == "ded"
    assert choice["logprobs"] == {
        "tokens": ["d", "e", "d"],
        "token_logprobs": [None, -12.625, -12.5],
        "top_logprobs": [None, {}, {"a": -0.5}],
        "text_offset": [0, 1, 2],
    }
    none = client.post(PLAIN, json={**echo, "max_tokens": 0, "logprobs": None}).json()["choices"][0]
    assert (none["text"], none["logprobs"]) == ("de", None)


def test_calls_of_tools_are_found_in_answers(client: TestClient) -> None:
    text = 'So: <tool_call>\n{"name": "sum", "arguments": {"a": 1}}\n</tool_call>'
    tools = [{"type": "function", "function": {"name": "", "parameters": {}}}]
    for name, stream in (("sum", False), ("sum", True), ("other", False)):
        tools[0]["function"] = {"name": name}
        body = {"messages": [{"role": "user", "content": text}], "tools": tools, "stream": stream}
        reply = client.post(CHAT, json=body)
        if name == "other":
            assert reply.json()["choices"][0]["message"]["content"] == name + text
            continue
        if stream:
            parts = [c for event in events(reply.text) for c in event["choices"]]
            content = "".join(p["delta"].get("content", "") for p in parts)
            (call,), reason = parts[-1]["delta"]["tool_calls"], parts[-1]["finish_reason"]
        else:
            (choice,) = reply.json()["choices"]
            content, (call,), reason = (
                choice["message"]["content"],
                choice["message"]["tool_calls"],
                choice["finish_reason"],
            )
        assert (content.strip(), call["function"]) == ("sumSo:", {"name": "sum", "arguments": '{"a": 1}'})
        assert (reason, call["type"]) == ("tool_calls", "function")


def test_embeddings(client: TestClient) -> None:
    reply = client.post("/v1/embeddings", json={"input": ["abc", "d"]}).json()
    assert [row["embedding"] for row in reply["data"]] == [[3.0, 0.5], [1.0, 0.5]]
    assert reply["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
    packed = client.post("/v1/embeddings", json={"input": "abc", "encoding_format": "base64"}).json()
    assert struct.unpack("<2f", base64.b64decode(packed["data"][0]["embedding"])) == (3.0, 0.5)


def test_models_health_and_metrics(client: TestClient) -> None:
    assert [m["id"] for m in client.get("/v1/models").json()["data"]] == ["echo"]
    assert client.get("/v1/models/echo").json()["id"] == "echo"
    error_of(client.get("/v1/models/other"), 404)
    assert client.get("/health").json() == {"status": "ok"}
    text = client.get("/metrics").text
    assert 'polyhal_responses_total{path="/health",status="200"}' in text
    assert "polyhal_running 0" in text.splitlines()


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (ask("a", temperature="hot"), "temperature", '"hot"; expected a number from 0'),
        (ask("a", max_tokens=1.5), "max_tokens", "1.5; expected an integer"),
        (ask("a", n=99), "n", "99; expected an integer from 1 to 16"),
        (ask("a", top_p=0), "top_p", "above 0"),
        (ask("a", stop=["a", ""]), "stop", "none of them empty"),
        (ask("a", logit_bias={"256": 1}), "logit_bias", "tokens from 0 to 255"),
        (ask("a", max_token=5), "max_token", "unknown field"),
        (ask("a", top_logprobs=2), "top_logprobs", "only with logprobs"),
        (ask("a", logprobs=True, top_logprobs=21), "top_logprobs", "from 0 to 20"),
        (ask("a", response_format={"type": "json_schema"}), "response_format", "a JSON schema"),
        (ask("a", response_format={"type": "json_object"}), None, "json_schema is not understood by an echo"),
        (ask("a", response_format={"type": "json_object"}, guided_regex="a"), "response_format", "both constrain"),
        (ask("a", tool_choice="required"), "tool_choice", "of a tool"),
        (ask("a" * 256), "messages", "256 tokens; expected at most 255"),
        (ask(""), "messages", "no tokens"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "messages", "not a question"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content", "text only"),
        ({}, "messages", "null; expected a list"),
    ],
)
def test_bad_fields(client: TestClient, body: dict[str, Any], param: str | None, words: str) -> None:
    error = error_of(client.post(CHAT, json=body), 400)
    assert error["param"] == param
    assert words in error["message"]


def test_bad_requests(client: TestClient) -> None:
    json_type = {"Content-Type": "application/json"}
    for raw in (b"", b"{", b"[1]", b'{"seed": NaN}', b"\xff", b'{"user": "\\ud800"}', b"[" * 100_000):
        error_of(client.post(CHAT, content=raw, headers=json_type), 400)
    error_of(client.post(CHAT, content=b"{}", headers={"Content-Type": "text/plain"}), 415)
    error_of(client.post(CHAT, json=ask("a", model="other")), 404)
    error_of(client.get("/v1/nothing"), 404)
    error_of(client.get(CHAT), 405)
    small = create_app(EchoModel(), EchoGenerator(), api_key="secret", limits=ServerLimits(body=200, prompt=3))
    with TestClient(small) as limited:
        error_of(limited.post(CHAT, json=ask("a")), 401)
        error_of(limited.get("/v1/models", headers={"Authorization": "Bearer wrong"}), 401)
        assert limited.get("/health").status_code == 200
        key = {"Authorization": "Bearer secret"}
        error_of(limited.post(CHAT, json=ask("a" * 200), headers=key), 413)
        error_of(limited.post(CHAT, content=iter([b" " * 150] * 2), headers={**key, **json_type}), 413)
        error_of(limited.post(CHAT, json=ask("abcd"), headers=key), 400)
        assert limited.post(CHAT, json=ask("abc"), headers=key).status_code == 200


def _await(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_concurrent_requests_equal_single_ones() -> None:
    generator = EchoGenerator(slots=4)
    texts = [f"question {i} " * (1 + i % 3) for i in range(12)]
    with TestClient(create_app(EchoModel(), generator)) as client, ThreadPoolExecutor(12) as pool:
        generator.gate.clear()
        replies = [pool.submit(client.post, CHAT, json=ask(text, stream=i % 2 == 0)) for i, text in enumerate(texts)]
        _await(lambda: "polyhal_waiting 8" in client.get("/metrics").text)
        generator.gate.set()
        for i, (reply, text) in enumerate(zip(replies, texts, strict=True)):
            response = reply.result()
            if i % 2:
                assert response.json()["choices"][0]["message"]["content"] == text
            else:
                parts = [c["delta"].get("content", "") for e in events(response.text) for c in e["choices"]]
                assert "".join(parts) == text
    assert generator.largest_batch == 4


def test_a_failing_request_does_not_end_the_server() -> None:
    with TestClient(create_app(EchoModel(), EchoGenerator())) as client:
        assert "out of memory" in error_of(client.post(CHAT, json=ask("!")), 500)["message"]
        (*_, last) = events(client.post(CHAT, json=ask("!", stream=True)).text)
        assert "out of memory" in last["error"]["message"]
        assert client.post(CHAT, json=ask("a")).json()["choices"][0]["message"]["content"] == "a"


@pytest.mark.parametrize("stream", [False, True])
def test_vanished_clients_and_a_full_queue(stream: bool) -> None:
    """A request that waits or runs is cancelled when its client vanishes, and its place is free."""
    generator = EchoGenerator(slots=1)
    app = create_app(EchoModel(), generator, limits=ServerLimits(waiting=1))

    async def post(body: dict[str, Any], vanish: asyncio.Event) -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []
        raw = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

        async def receive() -> dict[str, Any]:
            if raw:
                return raw.pop()
            await vanish.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": CHAT,
            "raw_path": CHAT.encode(),
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        await app(scope, receive, send)
        return sent

    async def scenario() -> None:
        async with app.router.lifespan_context(app):
            generator.gate.clear()
            vanish, stays = asyncio.Event(), asyncio.Event()
            first = [asyncio.ensure_future(post(ask("abc" * 50, stream=stream), vanish)) for _ in range(2)]
            while len(generator.streams) < 1:
                await asyncio.sleep(0.001)
            refused = await post(ask("a"), stays)
            assert refused[0]["status"] == 429
            assert (b"retry-after", b"1") in refused[0]["headers"]
            assert "at most 2: 1 in the batch and 1 that wait" in json.loads(refused[1]["body"])["error"]["message"]
            vanish.set()
            await asyncio.gather(*first)
            generator.gate.set()
            status = 429
            while status == 429:  # until the model's thread released the places
                reply = await post(ask("a"), stays)
                status = reply[0]["status"]
                await asyncio.sleep(0.001)
            assert json.loads(reply[1]["body"])["choices"][0]["message"]["content"] == "a"
            assert not generator.streams or all(s.finish_reason for s in generator.streams)

    asyncio.run(scenario())
