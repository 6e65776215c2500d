"""`polyhal generate`: generate text with a trained model, and stream it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.reporting import reported
from polyhal.commands.language_options import (
    AdapterFolder,
    CacheDType,
    ContextLength,
    DeviceName,
    DraftPath,
    LookupFlag,
    WeightDType,
    load_for_answers,
    speed,
)

if TYPE_CHECKING:
    from polyhal.llm import LanguageModel


@reported
def generate(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="The folder of a run, or [bold]best[/] or [bold]last[/] inside it; or a language model: a GGUF file, or a "
            "folder of Hugging Face's form.",
            show_default=False,
        ),
    ],
    prompt: Annotated[
        str, typer.Option(help="The text to continue. Default: a line break.", show_default=False)
    ] = "\n",
    max_tokens: Annotated[int, typer.Option(help="The largest number of tokens to generate.")] = 500,
    temperature: Annotated[
        float, typer.Option(help="0 always takes the most likely token; higher is more random.")
    ] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Sample only from this many of the most likely tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Sample only from the most likely tokens whose probabilities add up to this."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed; equal seeds generate equal text. Default: random.")
    ] = None,
    context: ContextLength = None,
    dtype: WeightDType = None,
    cache_dtype: CacheDType = None,
    adapter: AdapterFolder = None,
    json_schema: Annotated[
        Path | None, typer.Option(help="Of a language model: a file with the JSON schema that the text follows.")
    ] = None,
    grammar: Annotated[
        Path | None,
        typer.Option(help="Of a language model: a file with the grammar that the text follows, in Lark's form."),
    ] = None,
    regex: Annotated[
        str | None, typer.Option(help="Of a language model: the regular expression that the whole text matches.")
    ] = None,
    draft: DraftPath = None,
    lookup: LookupFlag = False,
    stats: Annotated[
        bool,
        typer.Option("--stats", help="Of a language model: report the speed, and how many proposed tokens were kept."),
    ] = False,
    device: DeviceName = None,
) -> None:
    """Continue a prompt with a trained model, streaming the text."""
    from polyhal.models import Sampling

    try:
        Sampling(temperature, top_k, top_p)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if max_tokens < 0:
        raise typer.BadParameter(f"--max-tokens is {max_tokens}; expected 0 or more")
    if seed is not None and not 0 <= seed < 2**63:
        raise typer.BadParameter(f"--seed is {seed}; expected 0 to 2**63 - 1")
    if not prompt:
        raise typer.BadParameter("the prompt is empty; expected at least one character", param_hint="--prompt")
    options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    constraint = _constraint(json_schema, grammar, regex)
    if _is_language_model(checkpoint):
        loaded = load_for_answers(checkpoint, device, dtype, context, adapter, draft, lookup, cache_dtype)
        texts = _texts_of_language_model(loaded, prompt, max_tokens, {**options, **constraint, "lookup": lookup}, stats)
    else:
        path = _find_checkpoint(checkpoint)
        if constraint or draft or lookup or stats:
            problem = "a run of polyhal train; expected a language model, for which grammars, --draft, --lookup and --stats are"
            raise typer.BadParameter(problem)
        texts = _texts_of_run(path, prompt, max_tokens, device, options)
    for text in texts:
        sys.stdout.write(text)
        sys.stdout.flush()
    sys.stdout.write("\n")


def _constraint(json_schema: Path | None, grammar: Path | None, regex: str | None) -> dict[str, Any]:
    """Return the grammar of the text as an argument of `LanguageModel.stream`; nothing without one. Raises BadParameter."""
    found: dict[str, Any] = {} if regex is None else {"regex": regex}
    for name, path in (("schema", json_schema), ("grammar", grammar)):
        if path is not None:
            try:
                found[name] = path.read_text(encoding="utf-8")
            except (OSError, UnicodeError) as error:
                raise typer.BadParameter(f"cannot read {path}: {error}") from None
    if json_schema is not None:
        from polyhal.utils.files import parse_json

        found["schema"] = parse_json(found["schema"], f"the schema {json_schema}")
    if len(found) > 1:
        raise typer.BadParameter("several grammars; expected one of --json-schema, --grammar and --regex")
    return found


def _is_language_model(path: Path) -> bool:
    if path.is_file():
        if path.suffix.lower() == ".gguf":  # also a damaged one
            return True
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    return not (path / "state.json").exists() and ((path / "config.json").exists() or any(path.glob("*.gguf")))


def _texts_of_language_model(
    loaded: LanguageModel, prompt: str, max_tokens: int, options: Mapping[str, Any], stats: bool
) -> Iterator[str]:
    """Yield the prompt, and the text that a model of others writes after it."""
    from polyhal.text import decode_stream

    ids = loaded.ids(prompt)
    tokens = loaded.stream_ids(ids, max_tokens, **options)
    yield prompt
    begin = time.perf_counter()
    yield from decode_stream(loaded.tokenizer, tokens, ids)
    if stats:
        sys.stderr.write(f"\n{speed(tokens, time.perf_counter() - begin)}\n")


def _texts_of_run(path: Path, prompt: str, max_tokens: int, device: str | None, options: Any) -> Iterator[str]:
    """Yield the prompt, and the text that a model of `polyhal train` writes after it."""
    from polyhal import Device
    from polyhal.models import stream
    from polyhal.text import decode_stream, without_text
    from polyhal.training import load_model

    loaded = load_model(path, Device(device))
    ids = loaded.tokenizer.encode(prompt)
    yield prompt
    stop = [loaded.tokenizer.pad_id]
    excluded = [i for i in without_text(loaded.tokenizer) if i not in stop]
    tokens = stream(loaded.model, ids, max_tokens, **options, stop_ids=stop, excluded_ids=excluded)
    yield from decode_stream(loaded.tokenizer, tokens)


def _find_checkpoint(path: Path) -> Path:
    """Return the checkpoint at `path`, or the best one in a run's folder. Raises BadParameter."""
    if not path.exists():
        raise typer.BadParameter(f"checkpoint {path} does not exist", param_hint="CHECKPOINT")
    if path.is_dir() and not (path / "state.json").exists():
        checkpoint = next((path / name for name in ("best", "last") if (path / name).exists()), None)
        if checkpoint is None:
            raise typer.BadParameter(f"{path} contains neither a checkpoint nor a run", param_hint="CHECKPOINT")
        return checkpoint
    return path
