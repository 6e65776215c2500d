"""Ask a language model that `polyhal serve` serves, by Python's standard library or by the package `openai`.

polyhal serve ~/models/model.gguf
python examples/call_server.py "Why is the sky blue?"
python examples/call_server.py "Why is the sky blue?" --openai
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen


def ask(address: str, key: str, question: str) -> Iterator[str]:
    """Yield the pieces of an answer: events of HTTP, each a line of JSON."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urlopen(Request(f"{address}/models", headers=headers)) as reply:
        model = json.load(reply)["data"][0]["id"]
    body = {"model": model, "messages": [{"role": "user", "content": question}], "stream": True}
    with urlopen(Request(f"{address}/chat/completions", json.dumps(body).encode(), headers)) as lines:
        for line in lines:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])["choices"][0]["delta"].get("content") or ""


def ask_by_openai(address: str, key: str, question: str) -> Iterator[str]:
    """Yield the pieces of an answer by OpenAI's package, as programs for its models do."""
    from openai import OpenAI

    client = OpenAI(base_url=address, api_key=key)
    model = client.models.list().data[0].id
    messages: Any = [{"role": "user", "content": question}]
    for part in client.chat.completions.create(model=model, messages=messages, stream=True):
        yield part.choices[0].delta.content or ""


def main() -> None:
    """Print an answer while it arrives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question")
    parser.add_argument("--address", default="http://127.0.0.1:8000/v1", help="as `polyhal serve` prints it")
    parser.add_argument("--key", default="none", help="the server's --api-key, if it has one")
    parser.add_argument("--openai", action="store_true", help="use the package `openai`")
    args = parser.parse_args()
    for text in (ask_by_openai if args.openai else ask)(args.address, args.key, args.question):
        print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
