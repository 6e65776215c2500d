"""Run a case on the CPU and, in each mode, on the device: differences, ops that ran on the CPU, and speed."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import polyhal.torch
from polyhal.hal.errors import CaptureError
from tests.torch.libraries.cases import Case, Program
from tests.torch.libraries.comparison import (
    FACTOR,
    LIMIT,
    TOLERANCE,
    Results,
    decided,
    differences,
    exact,
    mismatch,
    run,
)

RUNS = "agrees", "runs eagerly"
"""States in which a program runs and agrees."""
STATES = *RUNS, "refused", "differs", "fails"
_FOLDERS = re.compile(r"[^\s\"']*/site-packages/|" + re.escape(f"{Path(__file__).parents[3]}/"))
"""Beginnings of paths, which differ from machine to machine."""
_SECONDS = 0.3
"""Time for which a program is repeated to measure its speed."""
_WARM_UP = 24
"""Maximum number of steps before the measurement in which PyTorch's compiler compiles: it limits recompilations."""


@dataclass
class Result:
    """Result of one case in one mode on one device."""

    library: str
    version: str
    name: str
    device: str
    mode: str
    state: str
    """agrees, runs eagerly (it agrees, and was not recorded), differs, refused or fails"""
    outputs: float = 0.0
    gradients: float = 0.0
    parameters: float = 0.0
    """Difference of parameters and buffers after all steps."""
    calls: int = 0
    """Calls of ops with tensors of the device, in the mode "eager"."""
    on_cpu: dict[str, int] = field(default_factory=dict)
    """Calls by op that ran on the CPU."""
    from_exact: tuple[float, float] | None = None
    """Largest differences of the device and of the CPU from float64, if they differ by more than the tolerance."""
    graphs: int = 0
    """Graphs recorded or compiled."""
    speed: float | None = None
    """Processor time of an eager step of PyTorch on the CPU, divided by the processor time of a step, the shortest of each."""
    detail: str = ""
    pytorch: str = field(default_factory=lambda: torch.__version__)

    @property
    def native(self) -> float:
        """Fraction of calls that ran on the device."""
        return 1 - sum(self.on_cpu.values()) / self.calls if self.calls else 1.0


class _Calls(TorchDispatchMode):
    """Counts calls of ops with tensors of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        leaves = pytree.tree_leaves((args, kwargs, out))
        if any(isinstance(x, torch.Tensor) and x.device.type == "polyhal" for x in leaves):
            self.counts[str(func)] += 1
        return out


def measure(case: Case, version: str, is_timed: bool = False, place: str = "polyhal") -> Iterator[Result]:
    """Run a case in all its modes on a device of PyTorch. Any exception is a failure."""
    os.environ["POLYHAL_FALLBACK"] = "allow"
    device = os.environ.get("POLYHAL_DEVICE", "numpy")
    reference, broken = None, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = case.build("cpu", torch.float32, "eager")
            expected = run(case, program)
            reference = _seconds(program) if is_timed else None
    except Exception as error:
        broken = f"on PyTorch's CPU: {type(error).__name__}: {_first_line(error)}"
    reached: list[Results | None] = []
    for mode in case.modes:
        result = Result(case.library, version, case.name, device, mode, "fails", detail=broken)
        if broken:
            yield result
            continue
        try:
            program, found = _run(case, mode, place, result)
            _judge(case, result, found, expected, reached)
            if reference is not None and result.state in RUNS:
                result.speed = float(f"{reference / _seconds(program):.2g}")
        except CaptureError as error:
            result.state, result.detail = "refused", _first_line(error)
        except Exception as error:
            result.detail = f"{type(error).__name__}: {_first_line(error)}"
            if mode == "compiled" and _fails_on_the_cpu(case, type(error)):
                result.detail = f"also on PyTorch's CPU: {result.detail}"
        yield result


def _fails_on_the_cpu(case: Case, kind: type[Exception]) -> bool:
    """Return whether PyTorch's compiler fails for a program on the CPU, too."""
    torch.compiler.reset()
    try:
        case.build("cpu", torch.float32, "compiled").step()
    except kind:
        return True
    return False


def _run(case: Case, mode: str, place: str, result: Result) -> tuple[Program, Results]:
    """Run a program on the device. Sets counts of the result, and the reason if it was not recorded."""
    polyhal.torch.reset_report()
    if mode == "compiled":
        torch.compiler.reset()  # graphs of another case or device
    graphs = _compiled_graphs()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = case.build(place, torch.float32, mode)
        if mode == "eager":
            with _Calls() as calls:
                found = run(case, program)
            result.calls = sum(calls.counts.values())
        else:
            found = run(case, program)
    result.on_cpu = {n: f.calls for n, f in sorted(polyhal.torch.report().on_cpu.items())}
    if mode == "compiled":
        result.graphs = _compiled_graphs() - graphs
    if program.recording is not None:
        result.graphs = len(program.recording.graphs)
        reasons = [str(w.message) for w in caught if "eagerly" in str(w.message)]
        result.detail = _shortened(reasons[0].partition("; it runs eagerly")[0]) if reasons else ""
    return program, found


def _judge(case: Case, result: Result, found: Results, expected: Results, reached: list[Results | None]) -> None:
    """Set the state. `reached` keeps the results in float64, which are computed once for all modes."""
    is_eager_after_all, nothing_ran = bool(result.detail), result.mode == "eager" and not result.calls
    wrong = "nothing ran on the device" if nothing_ran else mismatch(found, expected)
    if result.mode != "eager" and not result.graphs and not is_eager_after_all:
        wrong = f"nothing was {result.mode}"
    if wrong:
        result.state, result.detail = "differs", wrong
        return
    distance = differences(found, expected)
    result.outputs, result.gradients, result.parameters = distance.outputs, distance.gradients, distance.state
    agrees = distance.largest <= TOLERANCE
    if not agrees:
        if not reached:
            reached.append(exact(case))
        if reached[0] is not None:
            exactly = decided(reached[0], reached[0])
            device, cpu = (differences(decided(x, reached[0]), exactly).largest for x in (found, expected))
            result.from_exact = device, cpu
            agrees = device <= max(TOLERANCE, FACTOR * cpu) and cpu <= LIMIT
    result.state = "differs" if not agrees else "runs eagerly" if is_eager_after_all else "agrees"


def _compiled_graphs() -> int:
    """Return the number of graphs that PyTorch's compiler has found in this process."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def _compilations() -> int:
    """Return the number of frames that PyTorch's compiler has compiled or left in this process."""
    return sum(int(n) for n in torch._dynamo.utils.counters["frames"].values())


def _seconds(program: Program) -> float:
    """Return the shortest time that the processor takes for a step; time of other processes does not count.

    A program that passes a new object or number in each step is compiled several times before it repeats a graph.
    """
    for _ in range(_WARM_UP):
        compiled = _compilations()
        program.step()
        if _compilations() == compiled:
            break
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 200):
        begin = time.process_time()
        program.step()
        torch.accelerator.synchronize()
        times.append(time.process_time() - begin)
    return min(times)


def _first_line(error: Exception) -> str:
    return _shortened(str(error).splitlines()[0]) if str(error) else ""


def _shortened(text: str) -> str:
    text = _FOLDERS.sub("", re.sub(r"^\[[^\]]*\] ", "", text))
    return text if len(text) <= 300 else text[:297] + "..."
