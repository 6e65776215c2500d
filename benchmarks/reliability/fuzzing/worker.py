"""The process that reads hostile files: under limits of memory and time, with every file and call observed.

Run by `hostile_files` as `python -m benchmarks.reliability.fuzzing.worker REQUEST`, where REQUEST is JSON: `folder`,
`seed`, and `inputs`, a list of [format, first, stop]. It writes one line of JSON per finding and one per format, and keeps
the number of the present input in the file `folder/progress`, for the case that it does not survive.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import resource
import shutil
import signal
import sys
import typing
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from polyhal.hal.errors import PolyhalError

_SECONDS = 10.0
"""Processor time for one input; the slowest valid file takes a hundredth of it."""
_SPACE = 1 << 30
"""Bytes of address space beyond those at the start."""
_PER_BYTE = 64
"""Bytes that reading may touch for each byte of an input, in addition to the allowance of its format: zip files
expand."""
_READABLE = (
    *{sys.prefix, sys.base_prefix, *map(os.path.realpath, filter(None, sys.path))},
    *("/usr", "/lib", "/proc", "/sys", "/dev/null", "/dev/zero", "/etc/localtime"),
)
"""Files that Python itself reads: modules, descriptions of packages, facts of the system."""
_FORBIDDEN = frozenset({"pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "exec",
                        "socket.connect", "ctypes.dlopen", "os.remove", "os.rmdir", "os.chmod", "shutil.rmtree"})  # fmt: skip
_TEMPLATES = ("<template>", "<unknown>")
"""Files of code that jinja2 makes of a template, which its sandbox runs."""
_OPENED = frozenset({"checkpoint", "checkpoint folder", "torch zip", "torch legacy", "pickle", "npz", "safetensors",
                     "tuning database", "verdicts", "benchmark cache", "quarantine", "kernel-call log", "crash journal",
                     "program cache"})  # fmt: skip
"""Formats with pipes and endless devices among their inputs."""
_CODE = str(Path(__file__).resolve().parents[3])
_MAKERS = (__file__, collections.__file__, typing.__file__, dataclasses.__file__)


class Hang(BaseException):
    """An input takes too long."""


class Watch:
    """Actions of the process while it reads an input."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder)
        self.active = False
        self.events: list[str] = []
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "open":
            self._see_open(*arguments)
        elif (event == "os.remove" and self._is_inside(arguments[0])) or (
            event == "exec" and _is_harmless(arguments[0])
        ):
            return
        elif event in _FORBIDDEN:
            self.events.append(f"{event} {str(arguments)[:200]}")

    def _see_open(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int) or self._is_inside(path):
            return
        writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if writes or not os.path.realpath(os.fsdecode(path)).startswith((*_READABLE, _CODE)):
            self.events.append(f"{'writes' if writes else 'reads'} {path!r}")

    def _is_inside(self, path: Any) -> bool:
        real = os.path.realpath(os.fsdecode(path))
        return real == self._folder or real.startswith(self._folder + os.sep)


def _is_harmless(code: Any) -> bool:
    """Return whether code that runs is a part of Polyhal or a table of characters, imported when it is needed first."""
    path = getattr(code, "co_filename", "")
    if path == "<string>":  # functions of ops, made of their declarations when they are used first; named tuples
        path = next(p for p in _callers() if p not in _MAKERS)
    own = _CODE in path or f"{os.sep}polyhal{os.sep}" in path
    return (
        (own and "backends" not in path)
        or path in _TEMPLATES
        or f"{os.sep}encodings{os.sep}" in path
        or f"{os.sep}_unicode_data{os.sep}" in path
    )


def _callers() -> Iterator[str]:
    """Return the files of the running functions, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


def _memory(field: bytes) -> int:
    """Return bytes by the name of the line in the process's status."""
    for line in Path("/proc/self/status").read_bytes().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def _place(folder: Path, files: dict[str, bytes], endless: int = 0) -> int:
    """Write the files of an input into an empty folder. Returns their size.

    One input in a hundred has a pipe instead of a file, and one a link to an endless device.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, (name, data) in enumerate(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if endless % 100 == 98 and number == endless // 100 % len(files):
            os.mkfifo(path)
        elif endless % 100 == 99 and number == endless // 100 % len(files):
            path.symlink_to("/dev/zero")
        else:
            path.write_bytes(data)
    return sum(map(len, files.values()))


def _chain(error: BaseException | None) -> list[BaseException]:
    """Return an error and its causes."""
    out: list[BaseException] = []
    while error is not None and error not in out:
        out.append(error)
        error = error.__cause__ or error.__context__
    return out


class Reader:
    """Reads inputs and reports findings."""

    def __init__(self, folder: Path, watch: Watch) -> None:
        self._folder = folder
        self._watch = watch

    def read(self, form: Any, case: Any, expected: str | None, number: int = 0) -> tuple[str, str]:
        """Read one input. Returns the outcome (`loaded` or the name of the error) and its finding, if any."""
        from benchmarks.reliability.fuzzing.case import digest_of

        size = _place(self._folder, dict(case.files), number)
        self._watch.events.clear()
        Path("/proc/self/clear_refs").write_text("5")
        before = _memory(b"VmHWM")
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        self._watch.active = True
        outcome, problem = "loaded", ""
        try:
            content = form.read(self._folder)
            if case.exact and number % 100 < 98 and expected is not None and digest_of(content) != expected:
                problem = "it reads as something else, unnoticed"
        except PolyhalError as error:
            outcome = type(error).__name__
            if any(isinstance(e, MemoryError) for e in _chain(error)):
                problem = f"it asks for too much memory: {error}"
            elif not str(error).strip():
                problem = "the error has no message"
        except Hang:
            problem = "it hangs"
        except Exception as error:  # any other error is a finding
            problem = f"{type(error).__name__}: {error}"[:500]
            problem += "".join(f" < {type(e).__name__}" for e in _chain(error)[1:]) + _where(error)
        finally:
            self._watch.active = False
            signal.setitimer(signal.ITIMER_PROF, 0)
        grown = _memory(b"VmHWM") - before
        if not problem and self._watch.events:
            problem = f"it {self._watch.events[0]}"
        if not problem and grown > form.allowance + _PER_BYTE * size:
            problem = f"{size} bytes take {grown >> 20} MiB"
        return outcome, problem


def _where(error: BaseException) -> str:
    """Return the innermost line of Polyhal in a traceback."""
    trace, line = error.__traceback__, ""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if "reliability" not in path:
            line = f" at {Path(path).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def main(request: dict[str, Any]) -> None:
    """Read all inputs of a request."""
    folder = Path(request["folder"])
    inputs = folder / "input"
    os.environ["POLYHAL_CACHE_DIR"] = str(inputs)
    from benchmarks.reliability.fuzzing import registry

    warnings.simplefilter("ignore")
    forms = registry.formats()
    reader = Reader(inputs, Watch(inputs))
    from benchmarks.reliability.fuzzing.case import digest_of

    expected = {}
    for name, form in forms.items():  # undamaged files can be read; this also imports all modules of the readers
        _place(inputs, dict(form.original.files))
        expected[name] = digest_of(form.read(inputs))

    def hang(number: int, frame: Any) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, hang)
    resource.setrlimit(resource.RLIMIT_AS, (_memory(b"VmSize") + _SPACE,) * 2)
    progress = os.open(folder / "progress", os.O_WRONLY | os.O_CREAT, 0o644)
    for name, first, stop in request["inputs"]:
        outcomes: Counter[str] = Counter()
        for i in range(first, stop):
            os.pwrite(progress, json.dumps([name, i]).ljust(99).encode(), 0)
            case = forms[name].make(Random(f"{request['seed']}/{name}/{i}"))
            outcome, problem = reader.read(forms[name], case, expected[name], i if name in _OPENED else 0)
            outcomes[outcome] += 1
            if problem:
                print(json.dumps({"format": name, "input": i, "problem": problem}), flush=True)
        print(json.dumps({"format": name, "outcomes": outcomes}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
