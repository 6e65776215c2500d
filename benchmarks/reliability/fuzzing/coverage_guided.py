"""Inputs that atheris finds by the branches that they reach, for the parsers of foreign files. It is optional, for development.

Run as `python -m benchmarks.reliability.fuzzing.coverage_guided FORMAT RUNS SEED`; an input that violates the rules is
printed, and ends the process with an exit code other than 0.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

from benchmarks.reliability.processes import ROOT, environment

FORMATS = (
    "torch zip",
    "torch legacy",
    "pickle",
    "npz",
    "safetensors",
    "tokenizer (characters)",
    "configuration",
    "metrics",
)
"""Formats of one file whose parser is in Python."""
_SEEDS = 40


def available() -> bool:
    """Return whether atheris is installed."""
    return importlib.util.find_spec("atheris") is not None


def search(runs: int, seed: int = 0) -> dict[str, str]:
    """Run each format `runs` times. Returns the failures by format: the last lines of the process."""
    problems = {}
    for name in FORMATS:
        command = [sys.executable, "-m", __name__, name, str(runs), str(seed)]
        with tempfile.TemporaryDirectory() as folder:
            own = environment(POLYHAL_DISABLE="opencl,wgpu", TMPDIR=folder)
            done = subprocess.run(
                command, env=own, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False
            )
        if done.returncode:
            problems[name] = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
    return problems


def main(name: str, runs: int, seed: int) -> None:
    """Run one format in this process, which atheris ends."""
    import atheris

    with atheris.instrument_imports(
        include=["polyhal.serialize", "polyhal.text", "polyhal.training", "pickletools", "zipfile"]
    ):
        from benchmarks.reliability.fuzzing import registry
    from polyhal.hal.errors import PolyhalError

    folder = Path(tempfile.mkdtemp())
    os.environ["POLYHAL_CACHE_DIR"] = str(folder / "cache")
    form = registry.formats()[name]
    corpus = folder / "corpus"
    corpus.mkdir()
    for i in range(_SEEDS):
        ((_, data),) = form.make(Random(f"{seed}/{i}")).files.items()
        (corpus / str(i)).write_bytes(data)
    ((file, _),) = form.original.files.items()

    def one(data: bytes) -> None:
        (folder / file).write_bytes(data)
        with suppress(PolyhalError):
            form.read(folder)

    limits = [
        f"-runs={runs}",
        f"-seed={seed + 1}",
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-max_len=20000",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/", str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
