"""`polyhal launch`: run a program in several processes, on one machine or many, through MPI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.reporting import fail, reported

CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Options after the program's name belong to the program."""
_WORKER = "polyhal.cli.workers.rank"


@reported
def launch(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM", help="A command, a script that ends in .py or -m MODULE, with its arguments."
        ),
    ],
    ranks: Annotated[int, typer.Option("--ranks", "-n", help="Processes to start.")] = 1,
    devices: Annotated[
        str | None,
        typer.Option(
            autocompletion=device_names,
            help="Devices for the ranks of a machine, round-robin, separated by commas. Default: its GPUs.",
        ),
    ] = None,
    hosts: Annotated[
        str | None, typer.Option(help="Machines, separated by commas, reached by ssh. Default: this one.")
    ] = None,
    restarts: Annotated[int, typer.Option(help="Number of restarts from the last checkpoint after lost ranks.")] = 0,
    min_ranks: Annotated[
        int | None, typer.Option(help="Use one rank less after each restart, down to this many.")
    ] = None,
) -> None:
    """Start a program in several processes that train one model, through MPI.

    Ctrl-C lets all ranks save and stop. If one dies, the others end within seconds, and a message reports its rank, the cause
    and the command that resumes the run. Under Slurm and other MPI launchers, `polyhal train` needs no launcher.
    """
    from polyhal.cli.app import COMMANDS
    from polyhal.cli.stop_request import StopRequest
    from polyhal.distributed.launcher import JobPlan, is_program, run

    if ranks < 1 or restarts < 0 or not 1 <= (ranks if min_ranks is None else min_ranks) <= ranks:
        raise typer.BadParameter(
            f"-n {ranks} with --restarts {restarts} and --min-ranks {min_ranks}; expected -n of 1 or more, "
            "--restarts of 0 or more, and --min-ranks from 1 to -n"
        )
    if not is_program(program, COMMANDS):
        raise typer.BadParameter(
            f"unknown command {program[0]!r}; expected one of {', '.join(COMMANDS)}, a script that ends in .py, "
            "or -m MODULE"
        )
    if program[0].endswith(".py") and hosts is None and not Path(program[0]).is_file():
        raise typer.BadParameter(f"file {program[0]} does not exist; expected the path of a script")
    job = JobPlan(tuple(program), ranks, _WORKER, _names(hosts), _names(devices), restarts, min_ranks)
    with StopRequest() as stop:
        status = run(job, stop, fail)
    raise typer.Exit(status)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())
