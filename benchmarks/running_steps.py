"""Steps that run on their own inputs: captured in Python, written by hand in JAX, as a C program, and in a page."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.step_models import ModelStep, Step
from polyhal import Device, export, tensor

Arguments = tuple[np.ndarray, ...]
_PROGRAM = Path(__file__).with_name("c_step.c")


class RunningStep(Protocol):
    """A step on one runtime."""

    def results(self, runs: Sequence[Arguments]) -> list[np.ndarray]:
        """Run once with each of the arguments. Returns the results."""

    def repeat(self, count: int) -> None:
        """Run with the last arguments, and wait; each run reads its result."""

    def close(self) -> None:
        """Free everything."""


class FunctionStep:
    """A function from arguments on the host to a result there."""

    def __init__(self, function: Callable[[Arguments], np.ndarray]) -> None:
        self._function = function
        self._last: Arguments = ()

    def results(self, runs: Sequence[Arguments]) -> list[np.ndarray]:
        self._last = runs[-1]
        return [np.array(self._function(x)).reshape(-1) for x in runs]

    def repeat(self, count: int) -> None:
        for _ in range(count):
            self._function(self._last)

    def close(self) -> None:
        """Do nothing."""


def in_python(step: ModelStep, device: Device) -> FunctionStep:
    """Return a captured step, which uploads its arguments and downloads its result in each run."""

    def run(arguments: Arguments) -> np.ndarray:
        step.rewind()
        return step.captured(*(tensor(x, device=device) for x in arguments)).numpy()

    return FunctionStep(run)


class CStep:
    """A step exported to C, in a process of its own. Needs gcc or clang."""

    def __init__(self, step: Step) -> None:
        """Export and compile. Raises RuntimeError without a compiler."""
        compiler = shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise RuntimeError("there is no C compiler; install gcc or clang")
        self._folder = Path(tempfile.mkdtemp(prefix="polyhal-c-"))
        export.c(step, self._folder, name="step")
        sources = [self._folder / "step.c", *sorted((self._folder / "runtime").glob("*.c")), _PROGRAM]
        includes = [f"-I{self._folder}", f"-I{self._folder / 'runtime'}"]
        options = ["-std=c99", "-O2", "-DPOLYHAL_PROGRAM=step_program", *includes]
        built = [*map(str, sources), "-o", str(self._folder / "c_step"), "-ldl", "-lm"]
        subprocess.run([compiler, *options, *built], check=True)
        self._process: subprocess.Popen[str] | None = None

    def results(self, runs: Sequence[Arguments]) -> list[np.ndarray]:
        given, made = self._folder / "inputs.bin", self._folder / "outputs.bin"
        given.write_bytes(b"".join(x.tobytes() for arguments in runs for x in arguments))
        words = [self._folder / "c_step", self._folder, given, len(runs), made]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([str(w) for w in words], **pipes)
        self._wait()
        return np.split(np.fromfile(made, np.float32), len(runs))

    def repeat(self, count: int) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError(f"the C program ended with code {self._process.wait()}")

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
        shutil.rmtree(self._folder)


class PageStep:
    """A step in a page of a headless browser. `browser` is a `tests.export.chromium.Chromium`."""

    def __init__(self, step: Step, browser: Any) -> None:
        """Export and open the page. Raises RuntimeError if it does not load."""
        self._browser = browser
        with tempfile.TemporaryDirectory(prefix="polyhal-page-") as folder:
            page = export.webgpu(step, Path(folder) / "page.html", outputs=["result"])
            browser.open(page)
            browser.wait_for("window.polyhal || document.querySelector('#status.error')")
        if not browser.evaluate("Boolean(window.polyhal)"):
            raise RuntimeError(browser.evaluate("document.querySelector('#status').textContent"))
        self._names = browser.evaluate("polyhal.programs.step.inputs.map((x) => x.name)")

    def results(self, runs: Sequence[Arguments]) -> list[np.ndarray]:
        found = []
        for arguments in runs:
            given = json.dumps({n: x.ravel().tolist() for n, x in zip(self._names, arguments, strict=True)})
            code = f"window.given = {given}; polyhal.programs.step.run(given).then((r) => [...r.result])"
            found.append(np.array(self._browser.evaluate(code), np.float32))
        return found

    def repeat(self, count: int) -> None:
        self._browser.evaluate(
            f"(async () => {{ for (let i = 0; i < {count}; i++) await polyhal.programs.step.run(given); }})()"
        )

    def close(self) -> None:
        self._browser.open("about:blank")
