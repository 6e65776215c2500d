"""`polyhal export`: write a captured step as a program that runs without Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import count, say
from polyhal.cli.reporting import reported
from polyhal.hal.byte_sizes import size_text

if TYPE_CHECKING:
    from polyhal.hal.device import Device

_DEFAULT = "opencl"


@reported
def export(
    step: Annotated[
        str,
        typer.Argument(
            help="A file of save_graph, or [bold]PROGRAM.py:NAME[/], a captured function of a program that is run; several "
            "for one page as [bold]PROGRAM.py:NAME,NAME[/]."
        ),
    ],
    target: Annotated[
        Path, typer.Argument(help="A page [bold].html[/] for browsers, or a folder; files in it are replaced.")
    ],
    c: Annotated[bool, typer.Option("--c", help="A C99 project for OpenCL, in a folder.")] = False,
    web: Annotated[bool, typer.Option("--web", help="A page for browsers with WebGPU, in a folder.")] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            help="JavaScript of the page. Default: runs the steps on given numbers.", exists=True, dir_okay=False
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page. Default: the names of the steps.")] = "",
    float16: Annotated[
        bool, typer.Option("--float16", help="Kernels of the page may use 16-bit floats, which not every GPU has.")
    ] = False,
    embed: Annotated[bool, typer.Option("--embed", help="Kernels and weights in the C source, not as files.")] = False,
    name: Annotated[
        str, typer.Option(help="Begins the names of C's functions. Default: the function's name, or step.")
    ] = "",
    device: Annotated[
        str | None,
        typer.Option(
            autocompletion=device_names,
            help=f"Device that runs the program, and the project in C. Default: {_DEFAULT} for C.",
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

    is_page = web or target.suffix.lower() in (".html", ".htm")
    if c is is_page:
        problem = "no form is chosen" if not c else "two forms are chosen"
        raise typer.BadParameter(f"{problem}; expected a page .html, --web or --c")
    console = Console(highlight=False)
    if is_page:
        named = _steps(step, None if device is None else Device(device))
        script = "" if page is None else page.read_text(encoding="utf-8")
        written = exports.webgpu(named, target, title=title, page=script, float16=float16)
        size = size_text(sum(f.stat().st_size for f in ([written] if written.is_file() else written.rglob("*"))))
        serve = "" if written.is_file() else f"; serve it: python -m http.server -d {written}"
        say(console, f"wrote {written}, {size}{serve}")
        return
    if target.is_file():
        raise typer.BadParameter(f"{target} is a file; expected a folder")
    if name and not is_identifier(name):
        raise typer.BadParameter(f"{name!r} is not an identifier of C", param_hint="--name")
    opened = Device(device or _DEFAULT)
    written = exports.c(_single(_steps(step, opened)), target, name=name, embed=embed, device=opened)
    files = count(sum(1 for f in written.rglob("*") if f.is_file()), "file")
    say(console, f"wrote {files} to {written}: cmake -S {written} -B {written / 'build'}")


def _single(steps: Any) -> Any:
    """Return the only step. Raises typer.BadParameter for several."""
    if isinstance(steps, dict):
        raise typer.BadParameter(f"{len(steps)} functions are named; expected one for --c")
    return steps


def _steps(text: str, device: Device | None) -> Any:
    """Return the path of a file, or the captured function of a program after its run; several in a dictionary by name."""
    script, colon, functions = text.rpartition(":")
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
    chosen = [f.strip() for f in functions.split(",")]
    for function in chosen:
        if function not in names:
            raise typer.BadParameter(f"{script} has no {function}; expected a name at its top level")
    return names[chosen[0]] if len(chosen) == 1 else {f: names[f] for f in chosen}
