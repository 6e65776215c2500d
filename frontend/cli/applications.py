"""Commands of other packages, the applications of this distribution among them, found by the entry-point group COMMANDS_GROUP.

The name of an entry point is a command's, and its object a function for `typer` or a typer application. A name with a dot
extends a command: `sim.calibrate` is a subcommand of the group `sim`, `doctor.report` carries out an option of `doctor`,
`bench.measure` the command `bench`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

from polyhal.cli.reporting import reported
from polyhal.hal.errors import PolyhalError, message

COMMANDS_GROUP = "polyhal.commands"


def offered() -> dict[str, EntryPoint]:
    """Return the entry points of commands by name, without importing them."""
    return {point.name: point for point in entry_points(group=COMMANDS_GROUP)}


def load(point: EntryPoint) -> Any:
    """Return the object of an entry point. If it cannot be loaded, a command that raises PolyhalError with the reason."""
    try:
        return point.load()
    except Exception as error:  # a package of others, which must not disable the commands of this one
        return _unavailable(point, error)


def extension(name: str) -> Callable[..., Any]:
    """Return the function that carries out a command or an option, such as `doctor.report`.

    Raises BadParameter if no package has it.
    """
    point = offered().get(name)
    if point is None:
        raise typer.BadParameter(f"no installed package has the entry point {name} of the group {COMMANDS_GROUP}")
    function: Callable[..., Any] = load(point)
    return function


def _unavailable(point: EntryPoint, error: Exception) -> Callable[..., None]:
    package = point.dist.name if point.dist is not None else point.value
    problem = f"the command {point.name} of the package {package} cannot be loaded: {type(error).__name__}: {error}"

    @reported
    def command() -> None:
        raise PolyhalError(message(None, problem, fix="update or uninstall the package"))

    command.__doc__ = f"Not available: the package {package} cannot be loaded."
    return command
