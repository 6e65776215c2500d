"""The typer application: its commands, its version option, and its exit codes.

To add a command of the library, write `commands/NAME.py` with a function `NAME` (or a typer application `app` for a group of
subcommands), add the name to `OWN_COMMANDS`, and show the command in the README. Other packages offer commands by entry points
([`applications.py`](applications.py)), as the applications in `apps/commands` do. Its tests belong in `tests/cli`: in a file of
their own, or in `test_cli_inspection.py` if it prints facts; bad arguments are a row of a table in `test_cli_bad_input.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import polyhal
from polyhal.cli.applications import load, offered
from polyhal.cli.reporting import BAD_INPUT, INTERRUPTED, fail, report, unwritten
from polyhal.hal.core.settings.pages import page

OWN_COMMANDS = (
    "launch",
    "devices",
    "doctor",
    "bench",
    "verify",
    "explain",
    "prebuild",
    "tune",
    "kernels",
    "sim",
    "run",
    "export",
    "bisect",
    "trace",
    "profile",
)
"""Modules of `commands/`, in the order of the help."""
_OFFERED = offered()
COMMANDS = (*(name for name in sorted(_OFFERED) if "." not in name), *OWN_COMMANDS)
"""All commands, in the order of the help: commands of applications first."""

_USAGE_ERROR: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""Base class of all usage errors, looked up by name: newer versions of typer bundle their own copy of click."""


class _Located:
    """A command whose usage errors have its context, which errors of the parser of options lack."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, and add the context to an error."""
        try:
            return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]
        except _USAGE_ERROR as error:
            if getattr(error, "ctx", None) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise


class _Command(_Located, TyperCommand):
    """A command without subcommands."""


class _Group(_Located, TyperGroup):
    """A command with subcommands."""


app = typer.Typer(
    name="polyhal",
    cls=_Group,
    help="Train and run neural networks on whatever compute device you have.",
    epilog=f"Documentation: {page('tour')}",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _register(name: str) -> None:
    if name not in OWN_COMMANDS:
        _add(name, load(_OFFERED[name]), panel="Applications")
        return
    module = import_module(f"polyhal.cli.commands.{name}")
    _add(name, getattr(module, "app", None) or getattr(module, name), getattr(module, "CONTEXT", None))


def _add(name: str, command: Any, settings: dict[str, Any] | None = None, panel: str = "Devices and kernels") -> None:
    """Add a command, or a group with the subcommands that other packages offer for it."""
    if not isinstance(command, typer.Typer):
        text = _unwrapped(command.__doc__)
        app.command(name, cls=_Command, help=text, context_settings=settings, rich_help_panel=panel)(command)
        return
    for dotted, point in _OFFERED.items():
        if dotted.startswith(f"{name}."):
            command.command(dotted.removeprefix(f"{name}."))(load(point))
    for one in command.registered_commands:
        one.cls = _Command
        one.help = _unwrapped((one.callback and one.callback.__doc__) or "")
    app.add_typer(command, name=name, cls=_Group, rich_help_panel=panel)


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
    """Run one command and return its exit code: 0 for success, 1 for a defect, 2 for bad input, 130 if interrupted.

    It is 0 if the reader of the output closes the pipe, as in `polyhal devices | head -1`.
    """
    try:
        code = _called(arguments)
        failed = [error for error in unwritten() if not isinstance(error, BrokenPipeError)]
        return report(failed[0]) if failed and not code else code
    except BrokenPipeError as error:
        return 0 if unwritten() else report(error)
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        unwritten()  # typer and rich exit with 1 when they find the pipe closed
        return 0
    except _USAGE_ERROR as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        if text:  # empty for a bare `polyhal`, which has printed its help
            problem = text.rstrip(".?").replace(". Did you mean", "; did you mean")
            fail(f"{problem}; see `{_command_path(error)} --help`")
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        fail("interrupted")
        return INTERRUPTED
    except Exception as error:  # outside a command, such as of an incomplete installation
        unwritten()  # a full disk would fail once more when the interpreter ends
        return report(error)


def _called(arguments: Sequence[str] | None) -> int:
    # Outside standalone mode typer returns exit codes and raises usage errors, so that all errors are shown in one form.
    # Explicit arguments replace the arguments and the name of the process.
    given = {} if arguments is None else {"args": list(arguments), "prog_name": "polyhal"}
    code = app(**given, standalone_mode=False)
    return code if isinstance(code, int) else 0


def _command_path(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "polyhal"
