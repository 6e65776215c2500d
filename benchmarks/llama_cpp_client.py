"""llama.cpp on a GGUF file, in a process with an interpreter that has llama-cpp-python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import llama_cpp_peer
from benchmarks.line_process import LineProcess


class LlamaCpp(LineProcess):
    """A model of llama.cpp, asked by the commands of `benchmarks/llama_cpp_peer.py`."""

    def __init__(self, python: str, path: Path, threads: int, context: int) -> None:
        # Its threads spin while they wait for each other: on a machine with other work, OMP_WAIT_POLICY=passive is faster, and
        # on a quiet one five times slower.
        command = [python, llama_cpp_peer.__file__, str(path.resolve()), str(threads), str(context)]
        super().__init__("llama.cpp", command, {"PYTHONPATH": ""})

    def ask(self, *words: object) -> Any:
        """Send a command and return the answer. Raises RuntimeError if the process ends."""
        return json.loads(self.answer(" ".join(map(str, words))))
