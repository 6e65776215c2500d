"""`polyhal profile`: run a program, and show where its time went."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import Json, print_json, printing_json
from polyhal.cli.reporting import reported


@reported
def profile(
    script: Annotated[Path, typer.Argument(help="A Python program.", exists=True, dir_okay=False)],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the program, after [bold]--[/].")] = None,
    device: Annotated[
        str | None,
        typer.Option(
            autocompletion=device_names, help="The default device of the program. Default: the best of this machine."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with timeline, roofline and memory here.", dir_okay=False)
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write a trace for Perfetto (ui.perfetto.dev) here.", dir_okay=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows of a table.")] = 15,
    json: Json = False,
) -> None:
    """Run a program, and show where its time went: ops, kernels, modules, lines, copies and gaps.

    The tables are printed to standard error, the program's own output to standard output; with --json the other way round.
    Captured steps run as they are. First steps compile kernels: `with polyhal.profile() as p:` around later steps leaves that
    out. The program's exit code is kept, and a program that fails or is interrupted is shown until then.
    """
    import polyhal
    from polyhal.cli.workers.program import exit_status, print_failure, run_program

    for output in (html, trace):
        _check_folder(output)
    status = 0
    interrupt: KeyboardInterrupt | None = None
    found = polyhal.profile()
    with printing_json() if json else nullcontext(), found:
        try:
            run_program(script, arguments or [], device)
        except SystemExit as exit_:
            status = exit_status(exit_.code)
        except KeyboardInterrupt as error:
            interrupt = error
        except Exception as error:
            status = print_failure(error)
    if json:
        print_json("profile", found.to_json())
    else:
        print(found.table(limit), file=sys.stderr)
    if html is not None:
        found.save_html(html)
    if trace is not None:
        found.save_chrome_trace(trace)
    if interrupt is not None:
        raise interrupt
    if status:
        raise typer.Exit(status)


def _check_folder(output: Path | None) -> None:
    """Raise if the folder of an output cannot be written, before the program runs."""
    if output is not None and not os.access(output.absolute().parent, os.W_OK):
        raise typer.BadParameter(f"the folder of {output} does not exist or cannot be written")
