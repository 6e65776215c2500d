"""The worker of `polyhal bisect`: runs a script on one device, and sends a record of every op.

Usage: python -m polyhal.cli.workers.record_ops REQUEST, a JSON object with the keys device, script, arguments and references.
"""

from __future__ import annotations

import json
import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import polyhal
from polyhal.cli.workers.program import run_program
from polyhal.hal.core import dispatch
from polyhal.hal.system.checks.modes import observing
from polyhal.hal.system.checks.op_record import OpExecution, OpRecorder, UncapturedExecutor


def main(request: dict[str, Any]) -> None:
    """Run the script. Its output goes to standard error, its seeds are the same every time."""
    messages, sys.stdout = sys.stdout, sys.stderr

    def emit(record: OpExecution) -> None:
        print(json.dumps(record.as_json()), file=messages, flush=True)

    os.environ["POLYHAL_DEVICE"] = request["device"]
    warnings.simplefilter("ignore")
    random.seed(0)
    np.random.seed(0)
    polyhal.manual_seed(0)
    recorder = OpRecorder(emit, references=request["references"])
    with observing(recorder), dispatch.executing(UncapturedExecutor(dispatch.EAGER)):
        run_program(Path(request["script"]), request["arguments"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
