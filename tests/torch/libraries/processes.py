"""Run the cases of a file: a process that imports the library, and a fork of it for each case."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from tests.torch.libraries import programs
from tests.torch.libraries.cases import CASES, Case
from tests.torch.libraries.measurement import Result, measure

_FORK = multiprocessing.get_context("fork")
_SECONDS = 600
"""Time after which a case is killed."""


def files() -> list[str]:
    """Return the names of the files of programs."""
    return sorted(m.name for m in pkgutil.iter_modules(programs.__path__))


def run_files(
    names: Sequence[str], is_chosen: Callable[[Case], bool], modes: Sequence[str], device: str, is_timed: bool
) -> Iterator[Result]:
    """Run cases, file by file: libraries are not imported together."""
    _prepare()
    for name in names:
        yield from _answers(_run_file, (name, is_chosen, modes, device, is_timed), None)


def _prepare() -> None:
    """Load compilers, once for all cases, without starting threads, which a fork would not have."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("torch._inductor.compile_fx", "polyhal.torch.compiler.backend", "polyhal.torch.steps.jit"):
            importlib.import_module(name)
    torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
    torch.compiler.reset()


def _run_file(
    send: Any, name: str, is_chosen: Callable[[Case], bool], modes: Sequence[str], device: str, is_timed: bool
) -> None:
    try:
        importlib.import_module(f"{programs.__name__}.{name}")
        chosen = [(case, version(case.library)) for case in CASES if is_chosen(case)]
    except (ImportError, PackageNotFoundError) as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return
    gc.freeze()  # collections need not visit what was imported
    for case, release in chosen:
        case = replace(case, modes=tuple(m for m in case.modes if m in modes))
        missing = list(case.modes)
        for result in _answers(_run_case, (case, release, is_timed), _SECONDS):
            missing.remove(result.mode)
            send(result)
        for mode in missing:
            detail = f"the process ended, or no result within {_SECONDS} s"
            send(Result(case.library, release, case.name, device, mode, "fails", detail=detail))


def _run_case(send: Any, case: Case, release: str, is_timed: bool) -> None:
    if is_timed:  # PyTorch and the device on one core, which other processes disturb less
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
        torch.set_num_threads(1)
    for result in measure(case, release, is_timed):
        send(result)


def _answers(target: Callable[..., None], arguments: tuple[Any, ...], seconds: float | None) -> Iterator[Any]:
    """Call a function in a fork and return all that it sends."""
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=target, args=(theirs.send, *arguments))
    process.start()
    theirs.close()
    try:
        while ours.poll(seconds):
            yield ours.recv()
    except EOFError:
        pass
    finally:
        process.kill() if seconds is not None else process.join()
        process.join()
