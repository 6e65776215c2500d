"""OpenAI's own client against the server, over real connections."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_server import EchoGenerator, EchoModel, running

from polyhal.server import ServerLimits, create_app

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
openai = pytest.importorskip("openai", reason="needs openai: pip install openai")

KEY = "secret"
GENERATOR = EchoGenerator(slots=2)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    app = create_app(EchoModel(), GENERATOR, api_key=KEY, limits=ServerLimits(waiting=1))
    with running(app) as port:
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=address, api_key=KEY, max_retries=0, timeout=20) as client:
        yield client


def question(text: str, **options: Any) -> dict[str, Any]:
    """Return the arguments of a question."""
    return {"model": "echo", "messages": [{"role": "user", "content": text}], **options}


def test_chat_and_plain_completions(client: Any) -> None:
    reply = client.chat.completions.create(
        **question("grün €", n=2, max_completion_tokens=7)
    )  # a third of the last one
    assert [(c.message.content, c.finish_reason) for c in reply.choices] == [("grün \ufffd", "length")] * 2
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (9, 14)
    reply = client.completions.create(model="echo", prompt=["one, two", "three"], stop=", ", seed=5)
    assert [(c.text, c.finish_reason) for c in reply.choices] == [("one", "stop"), ("three", "stop")]
    drawn = {"model": "echo", "prompt": "abcdefgh", "temperature": 1.0}
    first, again, other = (client.completions.create(seed=seed, **drawn).choices[0].text for seed in (1, 1, 2))
    assert first == again != other


def test_streams(client: Any) -> None:
    parts = list(client.chat.completions.create(**question("abc", stream=True, stream_options={"include_usage": True})))
    assert "".join(c.delta.content or "" for part in parts for c in part.choices) == "abc"
    assert parts[-1].usage.total_tokens == 6
    assert [c.finish_reason for part in parts for c in part.choices if c.finish_reason] == ["stop"]
    plain = client.completions.create(model="echo", prompt="xyz", stream=True)
    assert "".join(part.choices[0].text for part in plain) == "xyz"


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_and_calls_of_tools(client: Any, stream: bool) -> None:
    """As the client's own classes read them; it puts parts of streams together."""

    def answer(text: str, **options: Any) -> Any:
        if not stream:
            return client.chat.completions.create(**question(text, **options)).choices[0]
        with client.chat.completions.stream(**question(text, **options)) as events:
            return events.get_final_completion().choices[0]

    rows = answer("é STOP", stop=["STOP"], logprobs=True, top_logprobs=2).logprobs.content
    assert [(row.bytes, row.logprob) for row in rows] == [([0xC3], -24.375), ([0xA9], -21.125), ([32], -4.0)]
    assert [(best.token, best.logprob) for best in rows[2].top_logprobs] == [("a", -0.5), ("b", -9999.0)]
    tool = {"type": "function", "function": {"name": "sum", "parameters": {"type": "object"}}}
    found = answer('So: <tool_call>\n{"name": "sum", "arguments": {"a": [1]}}\n</tool_call>', tools=[tool])
    (call,) = found.message.tool_calls
    assert (found.finish_reason, call.type, call.function.name, call.function.arguments) == (
        "tool_calls",
        "function",
        "sum",
        '{"a": [1]}',
    )
    assert call.id
    again = [
        {"role": "assistant", "tool_calls": [call.model_dump(exclude_none=True)], "content": None},
        {"role": "tool", "tool_call_id": call.id, "content": "one"},
    ]
    assert answer("", messages=again).message.content == "one"


def test_models_and_embeddings(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["echo"]
    assert client.models.retrieve("echo").owned_by == "polyhal"
    reply = client.embeddings.create(model="echo", input=["abc", "d"])  # the client asks for base64
    assert [row.embedding for row in reply.data] == [[3.0, 0.5], [1.0, 0.5]]


def test_errors_are_the_exceptions_of_the_client(client: Any, address: str) -> None:
    def refused(error: type[Exception], **options: Any) -> Any:
        with pytest.raises(error) as caught:
            client.chat.completions.create(**{**question("a"), **options})
        return caught.value

    assert refused(openai.BadRequestError, temperature=-1).param == "temperature"
    assert refused(openai.BadRequestError, messages=[{"role": "user", "content": "a" * 256}]).code == (
        "context_length_exceeded"
    )
    assert "'other'" not in refused(openai.NotFoundError, model="other").message
    assert "out of memory" in refused(openai.InternalServerError, **question("!")).message
    with pytest.raises(openai.APIError, match="out of memory"):
        list(client.chat.completions.create(**question("!", stream=True)))
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=address, api_key="wrong", max_retries=0).models.list()


def test_clients_that_wait_too_long_or_leave_free_their_places(client: Any) -> None:
    """Three requests fill both places of the batch and the queue; after they are gone, three fit again."""
    GENERATOR.gate.clear()
    streams = [client.chat.completions.create(**question("abc" * 60, stream=True)) for _ in range(2)]
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.1).chat.completions.create(**question("late"))
    with pytest.raises(openai.RateLimitError) as refused:
        client.chat.completions.create(**question("ab", n=2))
    assert refused.value.response.headers["retry-after"]
    for stream in streams:
        stream.close()
    GENERATOR.gate.set()
    patient = client.with_options(max_retries=5)
    assert patient.chat.completions.create(**question("abc", n=3)).choices[2].message.content == "abc"


@pytest.mark.parametrize("options", [[], ["--openai"]])
def test_the_example_prints_the_answer(
    options: list[str], address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "call_server.py"
    monkeypatch.setattr("sys.argv", [example.name, "grün €", "--address", address, "--key", KEY, *options])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out == "grün €\n"
