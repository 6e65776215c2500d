"""`polyhal serve`: serve a language model by OpenAI's HTTP interface."""

from __future__ import annotations

from typing import Annotated

import typer

from polyhal.cli.reporting import reported
from polyhal.commands.language_options import (
    AdapterFolder,
    CacheDType,
    ContextLength,
    DeviceName,
    DraftPath,
    LookupFlag,
    ModelPath,
    WeightDType,
    load_for_answers,
)


@reported
def serve(
    model: ModelPath,
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for a free one.")] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="POLYHAL_API_KEY", help="The key that clients must send.", show_default=False),
    ] = None,
    name: Annotated[str, typer.Option(help="The model's name for clients. Default: the file's.")] = "",
    slots: Annotated[int, typer.Option(min=1, help="Sequences that are generated at a time.")] = 8,
    queue: Annotated[int, typer.Option(min=0, help="Sequences that may wait; further ones are refused.")] = 64,
    context: ContextLength = None,
    max_prompt: Annotated[int | None, typer.Option(min=1, help="The largest number of tokens of a prompt.")] = None,
    max_body: Annotated[int, typer.Option(min=1, help="The largest number of bytes of a request.")] = 8 << 20,
    dtype: WeightDType = None,
    cache_dtype: CacheDType = None,
    adapter: AdapterFolder = None,
    draft: DraftPath = None,
    lookup: LookupFlag = False,
    device: DeviceName = None,
) -> None:
    """Serve a language model by OpenAI's HTTP interface. Ctrl-C lets running answers finish, and ends.

    Clients use the address http://HOST:PORT/v1. /health and /metrics tell how the server is.
    """
    from rich.console import Console

    from polyhal.cli.display import say_wrapped, status_line
    from polyhal.server import BatchGenerator, ServedLanguageModel, ServerLimits, create_app, listen, run_app

    if api_key is not None and not (api_key.isascii() and api_key.strip()):
        raise typer.BadParameter("the key is empty or not ASCII", param_hint="--api-key")
    console = Console(highlight=False)
    limits = ServerLimits(body=max_body, prompt=max_prompt, waiting=queue)
    listening = listen(host, port)
    with status_line(console, f"loading {model}"):
        loaded = load_for_answers(model, device, dtype, context, adapter, draft, lookup, cache_dtype, slots)
        generator = BatchGenerator(loaded, slots, lookup)
        generator.warm_up()
        served = ServedLanguageModel(loaded, name)
    app = create_app(served, generator, api_key=api_key, limits=limits)
    address = f"[{host}]" if ":" in host else host
    place = f"http://{address}:{listening.getsockname()[1]}/v1"
    facts = f"{slots} sequences of {loaded.context} tokens, on {loaded.model.device}"
    say_wrapped(console, f"{served.name} at {place}: {facts}", "bold")
    if host not in ("127.0.0.1", "localhost", "::1") and api_key is None:
        say_wrapped(console, f"Everyone who reaches {host} can use it: --api-key sets a key.", "yellow")
    say_wrapped(console, "Ctrl-C lets running answers finish, and ends.", "dim")
    run_app(app, listening)
    if console.is_terminal:
        console.print()  # after ^C
