"""`polyhal trace`: run a program, and print each op with its launches, bytes and time as it runs."""

from __future__ import annotations

import sys
from collections import defaultdict
from contextlib import nullcontext
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyhal.cli.completion import device_names
from polyhal.cli.display import Json, count, kernel_time, print_json, printing_json
from polyhal.cli.reporting import reported
from polyhal.hal.byte_sizes import size_text

if TYPE_CHECKING:
    from polyhal.hal.core.execution.location import SourceLocation
    from polyhal.hal.system.diagnostics.op_trace import TracedOp


@reported
def trace(
    script: Annotated[Path, typer.Argument(help="A Python program.", exists=True, dir_okay=False)],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the program, after [bold]--[/].")] = None,
    device: Annotated[
        str | None,
        typer.Option(
            autocompletion=device_names, help="The default device of the program. Default: the best of this machine."
        ),
    ] = None,
    only: Annotated[str, typer.Option(help="Print only ops with such names, as in [bold]'*norm*'[/].")] = "*",
    eager: Annotated[
        bool, typer.Option("--eager", help="Run captured functions op by op, instead of their optimized steps.")
    ] = False,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of printed ops; further ones are counted.")] = 1_000,
    json: Json = False,
) -> None:
    """Run a program, and print each op with its launches, bytes and milliseconds as it runs.

    The trace is printed to standard error, the program's own output to standard output; with --json the other way round. A
    line has the time until the device had finished, the launches, the bytes of operands and results, the op, and the line of
    the program. The device finishes each op before the next one begins, so that the sum of times is more than the program takes
    without a trace. A summary by op follows at the end. The program's exit code is kept.
    """
    from polyhal.cli.workers.program import exit_status, print_failure, run_program
    from polyhal.hal.core import dispatch
    from polyhal.hal.system.checks.modes import observing
    from polyhal.hal.system.checks.op_record import UncapturedExecutor
    from polyhal.hal.system.checks.scoped import ScopedExecutor
    from polyhal.hal.system.diagnostics.op_trace import OpTrace

    printer = _Printer(only, limit, quiet=json)
    executor = (UncapturedExecutor if eager else ScopedExecutor)(dispatch.EAGER)
    try:
        with printing_json() if json else nullcontext(), observing(OpTrace(printer)), dispatch.executing(executor):
            run_program(script, arguments or [], device)
    except SystemExit as exit_:
        raise typer.Exit(exit_status(exit_.code)) from None
    except Exception as error:
        raise typer.Exit(print_failure(error)) from error
    finally:
        if json:
            print_json("trace", printer.to_json())
        else:
            printer.summary()


class _Printer:
    """Prints records of ops to standard error, and adds them up."""

    def __init__(self, only: str, limit: int, *, quiet: bool) -> None:
        self._only = only
        self._limit = limit
        self._quiet = quiet
        self._kept: list[dict[str, Any]] = []
        """Printed ops, for JSON."""
        self._seen: dict[str, list[TracedOp]] = defaultdict(list)
        self._printed = 0

    def __call__(self, op: TracedOp) -> None:
        self._seen[op.op].append(op._replace(operands=(), results=()))
        if not fnmatch(op.op, self._only):
            return
        self._printed += 1
        if self._printed > self._limit:
            return
        if self._quiet:
            self._kept.append(_facts(op))
            return
        how = "" if op.step is None or op.step.value == "native" else f"  [{op.step.value}]"
        print(f"{_columns([op])}  {op}{how}  {_where(op.location)}", file=sys.stderr)

    def to_json(self) -> dict[str, Any]:
        """Return the ops in their order, as many as the limit allows, and the sums of each op."""
        sums = [
            {"op": n, "calls": len(ops), "seconds": sum(o.seconds for o in ops), "bytes": sum(o.nbytes for o in ops)}
            for n, ops in self._seen.items()
        ]
        return {"ops": self._kept, "left_out": max(self._printed - self._limit, 0), "sums": sums}

    def summary(self) -> None:
        """Print the sums of each op, the slowest first."""
        if self._printed > self._limit:
            print(f"... and {count(self._printed - self._limit, 'op')} more (--limit)", file=sys.stderr)
        ops = [op for calls in self._seen.values() for op in calls]
        print(f"\n{_columns(ops)}  all {count(len(ops), 'op')}", file=sys.stderr)
        for name, calls in sorted(self._seen.items(), key=lambda item: -sum(op.seconds for op in item[1])):
            print(f"{_columns(calls)}  {count(len(calls), 'call')} of {name}", file=sys.stderr)


def _facts(op: TracedOp) -> dict[str, Any]:
    """Return an op as plain data."""
    return {
        "op": op.op,
        "call": str(op),
        "step": None if op.step is None else op.step.value,
        "seconds": op.seconds,
        "launches": None if op.kernels is None else len(op.kernels),
        "bytes": op.nbytes,
        "file": op.location.file or None,
        "line": op.location.line or None,
        **op.location.facts,
    }


def _columns(ops: list[TracedOp]) -> str:
    """Return the time, launches and bytes of ops in columns of fixed width."""
    counted = [len(op.kernels) for op in ops if op.kernels is not None]
    launches = count(sum(counted), "launch", "launches") if counted else "-"
    seconds, nbytes = sum(op.seconds for op in ops), sum(op.nbytes for op in ops)
    return f"{kernel_time(seconds):>10}  {launches:>12}  {size_text(nbytes):>10}"


def _where(location: SourceLocation) -> str:
    """Return file and line of a location, and the module and the gradient to which the op belongs."""
    line = [f"{Path(location.file).name}:{location.line}"] if location.file else []
    return ", ".join(line + location.notes)
