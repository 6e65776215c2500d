"""`polyhal perplexity`: how well a language model predicts a text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyhal.cli.display import Json
from polyhal.cli.reporting import reported
from polyhal.commands.language_options import AdapterFolder, DeviceName, ModelPath, WeightDType

if TYPE_CHECKING:
    from rich.console import Console

    from polyhal.llm import Perplexity

_CONTEXT = 512
_STDIN = Path("-")


@reported
def perplexity(
    model: ModelPath,
    text: Annotated[Path, typer.Argument(help="A text file; - for the standard input.", show_default=False)] = _STDIN,
    context: Annotated[
        int | None, typer.Option(help="Tokens of a window. Default: 512, or the model's if it is shorter.")
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens from a window to the next. Default: half of a window.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Windows that are computed at a time.")] = None,
    json: Json = False,
    dtype: WeightDType = None,
    adapter: AdapterFolder = None,
    device: DeviceName = None,
) -> None:
    """Measure how well a language model predicts a text: the perplexity is e to the mean loss per token; less is better.

    The text is divided into windows that overlap, and each token is scored once. Perplexities can be compared if the tokenizer,
    the context and the stride are equal.
    """
    from rich.console import Console

    from polyhal.cli.display import count, duration, print_json, say_wrapped, status_line
    from polyhal.hal.errors import SettingError, message
    from polyhal.llm import check_windows, load, open_model
    from polyhal.llm import perplexity as measure
    from polyhal.models import DecoderConfig

    console = Console(highlight=False, stderr=json)
    longest = DecoderConfig.from_json(open_model(model).config).max_position_embeddings
    context = min(_CONTEXT, longest) if context is None else context
    step = max(1, context // 2) if stride is None else stride
    check_windows(context, step, longest)
    if text == _STDIN and sys.stdin.isatty():
        say_wrapped(console, "Reading the text from this terminal; Ctrl-D ends it.", "dim")
    content, name = _content(text), "the standard input" if text == _STDIN else str(text)
    with status_line(console, f"loading {model}"):
        loaded = load(model, device, dtype, context, adapter)
        ids = loaded.tokenizer.encode(content, add_bos=True)
    if len(ids) < 2:
        raise SettingError(message(None, f"{name} has {count(len(ids), 'token')}", expected="at least 2"))
    if not json:
        files = loaded.files
        facts = f"{count(len(ids), 'token')} of {name}, in windows of {context} tokens, {step} apart"
        say_wrapped(console, f"{files.name} ({files.format}) on {loaded.model.device}: {facts}", "bold")
    begin = time.perf_counter()
    with _progress(console) as show:
        found = measure(loaded, ids, context, step, batch, show)
    seconds = time.perf_counter() - begin
    speed = len(ids) / max(seconds, 1e-9)
    if json:
        print_json(
            "perplexity",
            {
                "model": str(model),
                "text": str(text),
                "perplexity": found.value,
                "perplexity_error": found.error,
                "loss": found.loss,
                "loss_error": found.loss_error,
                "tokens": len(ids),
                "scored": found.scored,
                "context": context,
                "stride": step,
                "tokens_per_s": round(speed, 1),
            },
        )
        return
    console.print(f"perplexity {_digits(found.value)} \u00b1 {_digits(found.error)}", style="bold")
    say_wrapped(
        console,
        f"loss {found.loss:.4f} \u00b1 {found.loss_error:.4f} per token, {count(found.scored, 'token')} scored in "
        f"{duration(seconds)}, {speed:,.0f} tokens/s",
    )


def _digits(value: float) -> str:
    return f"{value:.4f}" if value < 1e5 else f"{value:.4g}"


def _content(text: Path) -> str:
    """Return the text of a file or of the standard input. Raises BadParameter and OSError."""
    try:
        data = sys.stdin.buffer.read() if text == _STDIN else text.read_bytes()
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{text} is not UTF-8 text: {error}", param_hint="TEXT") from error


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[int, int, Perplexity], None]]:
    """Yield a function that shows the finished windows: a bar on a terminal that can move its cursor, nothing elsewhere."""
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    from polyhal.cli.display import is_live
    from polyhal.cli.progress_bar import ProgressBar

    if not is_live(console):
        yield lambda done, count, so_far: None
        return
    columns = [TextColumn("{task.description}"), BarColumn(bar_width=None), TimeRemainingColumn()]
    with ProgressBar(*columns, console=console, expand=True, transient=True) as progress:
        task = progress.add_task("compiling", total=None)
        yield lambda done, count, so_far: progress.update(
            task, completed=done, total=count, description=f"window {done}/{count}  perplexity {so_far.value:.3f}"
        )
