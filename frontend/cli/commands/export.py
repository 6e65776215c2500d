"""`polyhal export`: write a captured step as a program that runs without Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import count, say
from polyhal.cli.reporting import reported

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_DEFAULT = "opencl"


@reported
def export(
    step: Annotated[
        str,
        typer.Argument(
            help="A file of save_graph, or [bold]PROGRAM.py:NAME[/], a captured function of a program that is run."
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Folder for the project; files in it are replaced.", file_okay=False)],
    c: Annotated[bool, typer.Option("--c", help="A C99 project for OpenCL.")] = False,
    embed: Annotated[bool, typer.Option("--embed", help="Kernels and weights in the C source, not as files.")] = False,
    name: Annotated[
        str, typer.Option(help="Begins the names of C's functions. Default: the function's name, or step.")
    ] = "",
    device: Annotated[
        str | None,
        typer.Option(
            autocompletion=device_names, help=f"Device that will run the project, and the program. Default: {_DEFAULT}."
        ),
    ] = None,
) -> None:
    """Write a captured step as a program that runs without Python.

    The step has its present state: weights, optimizer state, step counts and random streams.
    """
    from rich.console import Console

    from polyhal import export as exports
    from polyhal.export.c_text import is_identifier
    from polyhal.hal.device import Device

    if not c:
        raise typer.BadParameter("no form is chosen; expected --c")
    if name and not is_identifier(name):
        raise typer.BadParameter(f"{name!r} is not an identifier of C", param_hint="--name")
    target = Device(device or _DEFAULT)
    written = exports.c(_step(step, target), folder, name=name, embed=embed, device=target)
    files = count(sum(1 for f in written.rglob("*") if f.is_file()), "file")
    say(Console(highlight=False), f"wrote {files} to {written}: cmake -S {written} -B {written / 'build'}")


def _step(text: str, device: Device) -> Any:
    """Return the path of a file, or the captured function of a program after its run."""
    script, colon, function = text.rpartition(":")
    if not colon or not script.endswith(".py"):
        if not Path(text).exists():
            raise typer.BadParameter(f"{text} does not exist; expected a file of save_graph, or PROGRAM.py:NAME")
        return text
    from polyhal.cli.workers.program import exit_status, print_failure, run_program

    path = Path(script)
    if not path.is_file():
        raise typer.BadParameter(f"{script} does not exist; expected a Python program")
    try:
        names = run_program(path, [], device)
    except SystemExit as exit_:
        raise typer.Exit(exit_status(exit_.code)) from None
    except Exception as error:
        raise typer.Exit(print_failure(error)) from error
    if function not in names:
        raise typer.BadParameter(f"{script} has no {function}; expected a name at its top level")
    return names[function]
