"""Begin training in Python, continue it in a C program without Python, and take the weights back.

python examples/export_c.py --device opencl
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import polyhal as ph
from polyhal import export, nn, optim

PROGRAM = Path(__file__).with_suffix(".c")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="opencl", help="an OpenCL device, such as opencl:1")
    parser.add_argument("--steps", type=int, default=400, help="steps in C")
    args = parser.parse_args()

    device = ph.Device(args.device)
    ph.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 48), nn.Tanh(), nn.Linear(48, 1)).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)

    @ph.jit
    def learn(x: ph.Tensor, y: ph.Tensor) -> ph.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    angles = np.linspace(-3, 3, 64, dtype=np.float32)[:, None]
    x, y = ph.tensor(angles, device=device), ph.tensor(np.sin(angles), device=device)
    for _ in range(20):
        learn(x, y)
    before = float(nn.functional.mse_loss(model(x), y).item())
    print(f"Python: 20 steps, mean squared error {before:.5f} on {device} ({device.info.name})")

    with tempfile.TemporaryDirectory() as folder:
        project = export.c(learn, Path(folder) / "learn", outputs=["loss"])
        run(project, folder, args.steps)
        state = ph.load(Path(folder) / "learned.safetensors", device)
    model.load_state_dict({name: state["state"][name] for name in model.state_dict()})
    after = float(nn.functional.mse_loss(model(x), y).item())
    print(f"Python: {int(state['numbers']['step'])} steps in all, mean squared error {after:.5f}")
    return 0 if after < before / 10 else 1


def run(project: Path, folder: str, steps: int) -> None:
    """Compile the program with the project, as CMake would, and run it in a folder."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SystemExit("no C compiler; install gcc or clang")
    sources = [PROGRAM, project / "learn.c", *(project / "runtime").glob("*.c")]
    options = [f"-I{project}", f"-I{project / 'runtime'}", f'-DLEARN_FOLDER="{project}"', "-std=c99", "-O2"]
    subprocess.run([compiler, *options, *map(str, sources), "-o", f"{folder}/robot", "-ldl", "-lm"], check=True)
    printed = subprocess.run([f"{folder}/robot", str(steps)], cwd=folder, check=True, capture_output=True, text=True)
    print(printed.stdout, end="")


if __name__ == "__main__":
    sys.exit(main())
