"""`polyhal models`: the language models in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import Json, memory, plain_table, print_json, say_wrapped
from polyhal.cli.reporting import reported, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polyhal import Device

_DEEPEST = 4


@reported
def models(
    folder: Annotated[Path, typer.Argument(help="The folder to look in, with its subfolders.")] = Path(),
    context: Annotated[int, typer.Option(help="Tokens of context for the column `fits here`.")] = 4096,
    device: Annotated[
        str | None, typer.Option(autocompletion=device_names, help="The device for the column `fits here`.")
    ] = None,
    json: Json = False,
) -> None:
    """List language models: folders of Hugging Face's form, and GGUF files. Nothing but their headers is read."""
    from rich.console import Console

    from polyhal import Device

    if not folder.is_dir():
        raise typer.BadParameter(f"{folder} is not a folder", param_hint="FOLDER")
    target = Device(device)
    rows = [_described(path, folder, target, context) for path in _candidates(folder, _DEEPEST)]
    if json:
        print_json("models", {"models": rows})
        return
    console = Console()
    if not rows:
        say_wrapped(console, f"No models in {folder.resolve()}.")
        return
    table = plain_table(
        "model",
        "architecture",
        "parameters",
        "type",
        "size",
        "context",
        "fits here",
        right=("parameters", "size", "context"),
    )
    for row in rows:
        if "problem" not in row:
            size, parameters = memory(row["bytes"]), _count(row["parameters"])
            need = "yes" if row["fits"] else f"no: {memory(row['memory'])}"
            table.add_row(row["path"], row["architecture"], parameters, row["type"], size, str(row["context"]), need)
    if table.rows:
        console.print(table)
    for row in rows:
        if "problem" in row:
            say_wrapped(console, f"{row['path']}: {row['problem']}", "dim")
    if table.rows:
        say_wrapped(console, f"fits here: on {target}, with {context} tokens of context or the model's own", "dim")


def _candidates(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the folders with a config.json and the first parts of GGUF files."""
    if (folder / "config.json").is_file():
        yield folder
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for path in entries:
        if path.suffix == ".gguf" and path.is_file() and ("-of-" not in path.name or "-00001-of-" in path.name):
            yield path
        elif depth and path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            yield from _candidates(path, depth - 1)


def _described(path: Path, folder: Path, device: Device, context: int) -> dict[str, Any]:
    """Return the facts of a model, or its problem."""
    from polyhal.hal.errors import PolyhalError
    from polyhal.llm import estimate, open_model

    name = str(path.relative_to(folder)) if path != folder else path.resolve().name
    try:
        files = open_model(path)
        need, usable, length = estimate(files, device, context)
    except (PolyhalError, OSError, ValueError, ImportError) as error:
        return {"path": name, "problem": sentence(error)}
    return {
        "path": name,
        "architecture": files.config.get("model_type"),
        "parameters": files.parameters,
        "type": files.format,
        "bytes": files.nbytes,
        "context": length,
        "memory": need,
        "fits": usable is None or need <= usable,
    }


def _count(number: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1000:.0f} K"
