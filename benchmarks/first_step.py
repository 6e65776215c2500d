"""One training step of a 64-128-10 perceptron on handwritten digits, in a separate process.

python -m benchmarks.first_step FRAMEWORK DEVICE DATA prints the loss when the step has finished. The benchmark `startup`
runs and times it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_WIDTHS = (64, 128, 10)
_RATE = 1e-3


def polyhal_(device: str, images: np.ndarray, labels: np.ndarray) -> float:
    import polyhal
    from polyhal.models import MLP

    place = polyhal.Device(device)
    model = MLP(_WIDTHS, device=place)
    optimizer = polyhal.optim.Adam(model.parameters(), lr=_RATE)
    x, y = polyhal.tensor(images, device=place), polyhal.tensor(labels, device=place)
    loss = polyhal.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    place.synchronize()
    return float(loss)


def captured(device: str, images: np.ndarray, labels: np.ndarray) -> float:
    """Train the small GPT instead, up to the end of its first captured step, which follows one eager step."""
    import polyhal
    from benchmarks.training_workloads import WORKLOADS

    step: Any = WORKLOADS["gpt"].polyhal_step(polyhal.Device(device), "highest", captured=True)
    step()
    return float(step())


def pytorch(device: str, images: np.ndarray, labels: np.ndarray) -> float:
    import torch

    layers = [torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE)
    x, y = torch.from_numpy(images).to(device), torch.from_numpy(labels).long().to(device)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if device == "cuda":
        torch.cuda.synchronize()
    return float(loss)


def tinygrad_(device: str, images: np.ndarray, labels: np.ndarray) -> float:
    from tinygrad import Context, Tensor, nn
    from tinygrad.nn.optim import Adam
    from tinygrad.nn.state import get_parameters

    first, second = nn.Linear(64, 128), nn.Linear(128, 10)
    optimizer = Adam(get_parameters([first, second]), lr=_RATE)
    with Context(TRAINING=1):
        loss = second(first(Tensor(images)).relu()).sparse_categorical_crossentropy(Tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.item())


def netcl_(device: str, images: np.ndarray, labels: np.ndarray) -> float:
    from netcl import autograd, nn
    from netcl.core.device import manager
    from netcl.core.tensor import Tensor
    from netcl.optim import Adam

    queue: Any = manager.default().queue
    model = nn.Sequential(nn.Linear(queue, 64, 128), nn.ReLU(), nn.Linear(queue, 128, 10))
    optimizer = Adam(model.parameters(), lr=_RATE)
    classes = np.eye(10, dtype=np.float32)[labels]
    with autograd.Tape() as tape:
        logits = model(autograd.tensor(Tensor.from_host(queue, images)))
        loss = autograd.cross_entropy(logits, autograd.tensor(Tensor.from_host(queue, classes)))
    optimizer.zero_grad()
    tape.backward(loss)
    optimizer.step()
    queue.finish()
    return float(np.asarray(loss.to_host()).ravel()[0])


FRAMEWORKS = {"polyhal": polyhal_, "captured": captured, "torch": pytorch, "tinygrad": tinygrad_, "netcl": netcl_}


def main(framework: str, device: str, data: str) -> None:
    with np.load(data) as batch:
        loss = FRAMEWORKS[framework](device, batch["images"], batch["labels"])
    if not 1.0 < loss < 6.0:  # about log(10) for random weights
        raise ArithmeticError(f"the loss of the first step is {loss}")
    print(f"loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
