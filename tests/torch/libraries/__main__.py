"""Run libraries from PyPI on the device "polyhal": `python -m tests.torch.libraries --only Llama`.

Each is run if it is installed: pip install transformers torchvision timm diffusers peft torch-geometric lightning ultralytics.
The outcome is printed as JSON, a line for each case. `--record` merges it into tests/torch/libraries/results.json
and writes the page docs/torch-libraries.md. POLYHAL_DEVICE selects the device.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

import torch

from tests.torch.libraries.cases import CASES
from tests.torch.libraries.comparison import Result, compare
from tests.torch.libraries.page import PAGE, load, page, record

_FILES = (
    "transformers_models",
    "torchvision_models",
    "timm_models",
    "diffusers_models",
    "peft_models",
    "graph_models",
    "lightning_trainer",
    "ultralytics_models",
)


def main() -> int:
    """Run, print and record; return 1 if a case fails or differs."""
    arguments = _parse(sys.argv[1:])
    os.environ.setdefault("POLYHAL_DEVICE", "numpy")
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    results: list[Result] = []
    for file in _FILES if not arguments.page else ():
        try:
            importlib.import_module(f"tests.torch.libraries.{file}")
        except (ImportError, PackageNotFoundError) as error:
            print(f"{file} is left out: {error}", file=sys.stderr)
    for case in CASES:
        if not any(word in f"{case.library} {case.name}" for word in arguments.only.split(",")):
            continue
        results.append(compare(case, version(case.library)))
        print(json.dumps({**asdict(results[-1]), "native": round(results[-1].native, 4)}), flush=True)
    if arguments.record:
        record(results)
    if arguments.record or arguments.page:
        PAGE.write_text(page(load()), encoding="utf-8")
    return int(any(r.state != "agrees" for r in results))


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torch.libraries", description=__doc__)
    parser.add_argument("page", nargs="?", choices=["page"], help="write the page alone")
    parser.add_argument("--only", default="", help="cases whose library or name contains this text; several by commas")
    parser.add_argument("--record", action="store_true", help="write figures and page")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
