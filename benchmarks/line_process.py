"""A peer in a process of its own, which answers each line of its standard input with a line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_ROOT = Path(__file__).resolve().parents[1]


class LineProcess:
    """A process in the project's root that answers lines. Errors name it by `name`."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._name = name
        self._process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def answer(self, line: str) -> str:
        """Send a line and return the answer. Raises RuntimeError if the process ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._name}'s process ended with code {self._process.wait()}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()
