"""`python -m tests.export.play FOLDER RESULTS RUNS`: runs a program in a folder on wgpu, and writes the bytes of its outputs.

Inputs are in inputs.npz in the folder. A process of its own may open another Vulkan driver than the tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from polyhal.backends.wgpu import discovery
from polyhal.export import load_program
from tests.export.player import Player

if __name__ == "__main__":
    folder, results, runs = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    player = Player(load_program(folder), discovery.devices()[0].native)
    with np.load(folder / "inputs.npz") as inputs:
        made = [player.run(**inputs) for _ in range(runs)]
    results.write_bytes(b"".join(x.tobytes() for outputs in made for x in outputs.values()))
