"""The typer application: its commands, its version option, and its exit codes.

To add a command, write `commands/NAME.py` with a function `NAME` (or a typer application `app` for a group of
subcommands), add the name to `COMMANDS`, and show the command in the README. Its tests belong in `tests/cli`: in a file of
their own, or in `test_cli_inspection.py` if it prints facts; bad arguments are a row of a table in `test_cli_bad_input.py`.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

import polyhal
from polyhal.cli.reporting import BAD_INPUT, INTERRUPTED, fail

COMMANDS = (
    "train",
    "launch",
    "generate",
    "devices",
    "doctor",
    "verify",
    "explain",
    "prebuild",
    "tune",
    "kernels",
    "sim",
    "bisect",
    "trace",
    "plan",
)
"""Modules of `commands/`, in the order of the help."""

app = typer.Typer(
    name="polyhal",
    help="Train and run neural networks on whatever compute device you have.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_USAGE_ERROR: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""Base class of all usage errors, looked up by name: newer versions of typer bundle their own copy of click."""


def _register(name: str) -> None:
    module = import_module(f"polyhal.cli.commands.{name}")
    if hasattr(module, "app"):
        for command in module.app.registered_commands:
            command.help = _unwrapped(command.callback.__doc__)
        app.add_typer(module.app, name=name)
    else:
        command = getattr(module, name)
        settings = getattr(module, "CONTEXT", None)
        app.command(name, help=_unwrapped(command.__doc__), context_settings=settings)(command)


def _unwrapped(docstring: str) -> str:
    """Join the lines of each paragraph: typer keeps line breaks, which suit the source, not a terminal."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(docstring).split("\n\n"))


for _name in COMMANDS:
    _register(_name)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"polyhal {polyhal.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train and run neural networks on whatever compute device you have."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 for success, 2 for bad input, 130 if interrupted."""
    try:
        # Outside standalone mode typer returns exit codes and raises usage errors, so that all errors are shown in one form.
        # Explicit arguments replace the arguments and the name of the process.
        given = {} if arguments is None else {"args": list(arguments), "prog_name": "polyhal"}
        code = app(**given, standalone_mode=False)
    except _USAGE_ERROR as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        if text:  # empty for a bare `polyhal`, which has printed its help
            problem = text.rstrip(".?").replace(". Did you mean", "; did you mean")
            fail(f"{problem}; see `{_command_path(error)} --help`")
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        fail("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe, as in `polyhal devices | head -1`. Discard the remaining buffered output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def _command_path(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "polyhal"
