"""The typer application: its commands, its version and the way it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import polyhal
from polyhal.cli.commands.devices import devices
from polyhal.cli.commands.doctor import doctor
from polyhal.cli.commands.explain import explain
from polyhal.cli.commands.generate import generate
from polyhal.cli.commands.kernels import app as kernels
from polyhal.cli.commands.prebuild import prebuild
from polyhal.cli.commands.train import train
from polyhal.cli.commands.tune import tune
from polyhal.cli.commands.verify import verify
from polyhal.cli.reporting import BAD_INPUT, INTERRUPTED, fail

app = typer.Typer(
    name="polyhal",
    help="Train and run neural networks on whatever compute device you have.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(train)
app.command()(generate)
app.command()(devices)
app.command()(doctor)
app.command()(verify)
app.command()(explain)
app.command()(prebuild)
app.command()(tune)
app.add_typer(kernels, name="kernels")

_USAGE_ERROR: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""The base of all usage errors. Newer versions of typer carry their own copy of click, so it is found by its name."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"polyhal {polyhal.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train and run neural networks on whatever compute device you have."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for bad input, 130 when interrupted."""
    try:
        # Without standalone mode typer returns exit codes and raises usage errors, which then read like all others.
        code = app(None if arguments is None else list(arguments), standalone_mode=False)
    except _USAGE_ERROR as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        if text:  # a bare `polyhal` has shown its help and has nothing to say
            fail(f"{text.rstrip('.')}; see `{_path(error)} --help`")
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        fail("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader is gone, as with `polyhal devices | head -1`. What is still buffered has no place to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def _path(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "polyhal"
