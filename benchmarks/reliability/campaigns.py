"""The campaigns in their long form, by name. Each imports its modules when it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple


class Campaign(NamedTuple):
    """A campaign, and the counts of it that the page shows."""

    title: str
    about: str
    counts: Callable[[float], dict[str, Any]]
    """Runs it, given the minutes of training of the campaign of soak. Returns counts, among them `findings`."""
    figures: tuple[tuple[str, str], ...]
    """Keys of counts, with their descriptions."""
    tables: tuple[str, ...] = ()
    """Keys of tables: of rows by kind, with counts by outcome, or with one count."""


def _faults(_: float) -> dict[str, Any]:
    from benchmarks.reliability.faults import faults

    return asdict(faults(exhaustive=("mlp",), each=20, checked=20))


def _drivers(_: float) -> dict[str, Any]:
    from benchmarks.reliability.driver_errors import driver_errors

    return asdict(driver_errors(20))


def _kills(_: float) -> dict[str, Any]:
    from benchmarks.reliability.kills import kills

    return asdict(kills(25, 50, 10))


def _files(_: float) -> dict[str, Any]:
    from benchmarks.reliability.hostile_files import hostile_files

    return asdict(hostile_files(100_000, guided=5_000))


def _load(_: float) -> dict[str, Any]:
    from benchmarks.reliability.load import load
    from benchmarks.reliability.machine_devices import names

    return asdict(load(tuple(names())))


def _soak(minutes: float) -> dict[str, Any]:
    from benchmarks.reliability.machine_devices import names
    from benchmarks.reliability.soak import soak

    return asdict(soak(minutes, names()))


def _pool(_: float) -> dict[str, Any]:
    from benchmarks.reliability.machine_devices import names
    from benchmarks.reliability.pool_cost import pool_cost

    return asdict(pool_cost(names()))


def _oclgrind(_: float) -> dict[str, Any]:
    from benchmarks.reliability.oclgrind import oclgrind

    return asdict(oclgrind())


CAMPAIGNS = {
    "faults": Campaign(
        "Faults of a device",
        "Trainings of an MLP, a CNN and a GPT on the [simulated GPU](simulator.md), eager and captured, are hit by one fault "
        "each: at every allocation, build, command and transfer of the MLP, at samples of the others with fixed seeds. A fault "
        "becomes a typed "
        "error that names device and cause, or does no harm. Then the same process repeats the step, or loads its last "
        "checkpoint, on a fresh device if the old one is lost. At the end the weights must be those of a run without faults, "
        "bit for bit. Wrong results of a kernel are found only by `POLYHAL_CHECK=reference`.",
        _faults,
        (
            ("injected", "faults injected"),
            ("unharmed", "did no harm"),
            ("recovered", "survived: the error was right, and so were the weights after it"),
            ("detected", "wrong results of a kernel, found by the check"),
            ("undetectable", "wrong results of a kernel that went unnoticed without the check"),
            ("lost", "lost data: runs that ended with other weights, or did not go on"),
            ("leaks", "leaks: memory of the device, buffers of the host, devices, threads"),
        ),
        ("trainings", "outcomes"),
    ),
    "drivers": Campaign(
        "Errors of real drivers",
        "The faults that drivers can be brought to raise themselves, on each OpenCL device of the machine: a tensor larger "
        "than the device allows, memory that ends, a kernel that does not build, too much local memory, too large a group. "
        "Each is a typed error with its cause (or works, where a driver gives more local memory than it says). Then the "
        "device must compute, with the memory that it had before.",
        _drivers,
        (
            ("provoked", "errors provoked"),
            ("recovered", "after which the device went on"),
            ("leaks", "leaks"),
        ),
        ("outcomes",),
    ),
    "kills": Campaign(
        "Kills",
        "Processes that write checkpoints, caches and runs end by `kill -9` at random moments. What was written whole must be "
        "there, nothing else may be, and the next start must work.",
        _kills,
        (
            ("kills", "processes killed"),
            ("lost", "lost data"),
            ("resumed", "trainings that went on to the weights of a run without a kill"),
        ),
        ("by_target", "moments"),
    ),
    "files": Campaign(
        "Hostile files",
        "Damaged and invented checkpoints, graphs, tuning databases, caches, tokenizers and configurations are read under "
        "limits of memory and time. Each must be read as what was written, or be refused by an error of Polyhal.",
        _files,
        (
            ("inputs", "files read"),
            ("loaded", "loaded"),
            ("refused", "refused"),
            ("guided", "more, which atheris made to reach other branches of the parsers"),
        ),
        ("outcomes",),
    ),
    "load": Campaign(
        "Load",
        "Many small launches, many tensors at once, threads on one device and on several, processes that end while the device "
        "works, and forked children, on all devices of the machine and on the simulated GPU. All results are compared. Tensors "
        "fill 80 % of the memory of small simulated devices, and of those real ones whose memory is not most of what the "
        "host has free: the table says which.",
        _load,
        (
            ("launches", "small launches"),
            ("live_tensors", "tensors alive at once, on each device"),
            ("largest", "bytes in the tensors that filled 80 % of a device's memory"),
            ("threads", "threads at once, on each device and on all together"),
            ("exits", "processes that ended with work in flight"),
            ("forks", "forked children that ended; those of drivers were refused the device of their parent"),
            ("leaks", "leaks"),
        ),
        ("by_device",),
    ),
    "soak": Campaign(
        "Soak",
        "An MLP, a CNN and a GPT are trained on all devices in turn, eagerly and captured, by one process. Nothing may "
        "grow after the first tenth of the time: memory of the process (by more than 8 MiB, what allocators keep in pages "
        "that are not full), memory in use in the pools, blocks of drivers, tensors, open files, threads. In between new "
        "models are trained from the same seed, and must end with the same bits each time.",
        _soak,
        (
            ("minutes", "minutes of training"),
            ("steps", "steps in them"),
            ("repeated", "trainings repeated with the same bits"),
            ("leaks", "leaks"),
        ),
        ("course", "growth"),
    ),
    "pool": Campaign(
        "Cost of the memory pool",
        "Blocks that a training step takes from the pool, times what taking and returning one costs, as a share of the step. "
        "The models are small, so that the share is large. The limit is 5 %.",
        _pool,
        (("steps", "kinds of steps measured"), ("worst_percent", "per cent of a step at most")),
        ("shares",),
    ),
    "oclgrind": Campaign(
        "Kernels under an interpreter",
        "[Oclgrind](https://github.com/jrprice/Oclgrind) runs the kernels of the conformance kit's calls with few elements, "
        "and looks for data races, accesses out of bounds and memory that was not initialized. Continuous integration runs "
        "a few calls per op, this campaign all of them in every layout.",
        _oclgrind,
        (
            ("cases", "cases of the kit"),
            ("ops", "ops in them"),
            ("passed", "passed"),
            ("expected", "left out, or known defects of the interpreter"),
            ("reports", "reports of races, bounds or uninitialized memory"),
        ),
    ),
}
